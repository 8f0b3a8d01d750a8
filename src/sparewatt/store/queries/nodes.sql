-- name: list_nodes
-- Without those that are forgotten.
SELECT id, account_id, last_seen_at, specs, served_at IS NOT NULL AS has_served FROM nodes
WHERE specs IS NOT NULL ORDER BY id LIMIT $1

-- name: find_node_owner
SELECT n.account_id, a.closed_at IS NOT NULL AS closed, n.lease_order
FROM nodes n JOIN accounts a ON a.id = n.account_id WHERE n.id = $1

-- name: insert_join_token
INSERT INTO join_tokens (hash, account_id, created_by, expires_at, lease_order)
VALUES ($1, $2, $3, now() + make_interval(secs => $4), $5) RETURNING expires_at

-- name: look_at_join_token
SELECT t.account_id, t.lease_order, CASE WHEN t.used_at IS NOT NULL THEN 'used' WHEN t.expires_at <= now() THEN 'expired'
    WHEN a.closed_at IS NOT NULL THEN 'closed' ELSE 'accepted' END AS verdict
FROM join_tokens t JOIN accounts a ON a.id = t.account_id WHERE t.hash = $1 FOR UPDATE OF t

-- name: use_join_token
UPDATE join_tokens SET used_at = now(), used_by = $2 WHERE hash = $1

-- name: register_node
INSERT INTO nodes (id, account_id, lease_order) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING

-- name: move_nodes
UPDATE nodes SET account_id = $3 WHERE id = ANY ($1::text[]) AND account_id = $2

-- name: nodes_of_closed_accounts
-- Of accounts closed in the last hour: a gateway that was cut off for longer has lost its links as well.
SELECT n.id FROM nodes n JOIN accounts a ON a.id = n.account_id WHERE a.closed_at > now() - interval '1 hour'

-- name: save_nodes
UPDATE nodes SET specs = new.specs::jsonb, last_seen_at = to_timestamp(new.seen)
FROM unnest($1::text[], $2::text[], $3::float8[]) AS new (id, specs, seen) WHERE nodes.id = new.id

-- name: note_nodes_seen
UPDATE nodes SET last_seen_at = now() WHERE id = ANY ($1::text[])

-- name: forget_unserved_nodes
UPDATE nodes SET specs = NULL
WHERE served_at IS NULL AND specs IS NOT NULL AND last_seen_at < now() - make_interval(secs => $1)

-- name: nodes_of_leases
-- With their orders: those that are known, and those that a gateway may still have in memory.
SELECT id, lease_order FROM nodes
WHERE lease_order IS NOT NULL AND (specs IS NOT NULL OR last_seen_at > now() - interval '1 hour') LIMIT $1

-- name: forget_nodes
UPDATE nodes SET specs = NULL WHERE id = ANY ($1::text[]) AND specs IS NOT NULL

-- name: forgotten_among
SELECT id FROM nodes WHERE id = ANY ($1::text[]) AND specs IS NULL

-- name: forget_old_tokens
DELETE FROM join_tokens WHERE expires_at < now() - interval '30 days'
