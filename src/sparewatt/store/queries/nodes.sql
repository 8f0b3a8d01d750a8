-- name: list_nodes
SELECT id, last_seen_at, specs FROM nodes ORDER BY id LIMIT $1

-- name: node_is_registered
SELECT EXISTS (SELECT 1 FROM nodes WHERE id = $1)

-- name: insert_join_token
INSERT INTO join_tokens (hash, created_by, expires_at)
VALUES ($1, $2, now() + make_interval(secs => $3)) RETURNING expires_at

-- name: look_at_join_token
SELECT used_at, expires_at <= now() AS expired FROM join_tokens WHERE hash = $1 FOR UPDATE

-- name: use_join_token
UPDATE join_tokens SET used_at = now(), used_by = $2 WHERE hash = $1

-- name: register_node
INSERT INTO nodes (id) VALUES ($1) ON CONFLICT (id) DO NOTHING

-- name: save_nodes
-- One statement for all nodes that changed since the last time.
UPDATE nodes SET specs = new.specs::jsonb, last_seen_at = to_timestamp(new.seen)
FROM unnest($1::text[], $2::text[], $3::float8[]) AS new (id, specs, seen) WHERE nodes.id = new.id

-- name: forget_old_tokens
DELETE FROM join_tokens WHERE expires_at < now() - interval '30 days'
