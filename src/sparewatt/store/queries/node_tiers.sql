-- name: put_node_tiers
-- A tier that stays keeps the time since when a node has it.
INSERT INTO node_tiers AS known (node_id, tier, since)
SELECT new.node_id, new.tier, to_timestamp($3::float8)
FROM unnest($1::text[], $2::text[]) AS new (node_id, tier)
ON CONFLICT (node_id) DO UPDATE SET tier = excluded.tier, since = excluded.since WHERE known.tier <> excluded.tier

-- name: node_tiers
SELECT node_id, tier, extract(epoch FROM since)::float8 AS since_unix_s FROM node_tiers ORDER BY node_id LIMIT $1
