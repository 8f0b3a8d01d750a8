-- name: put_model_alias
-- Nothing is returned if there are as many as there may be, and this one is new.
INSERT INTO model_aliases (name, target)
SELECT $1::text, $2::text
WHERE EXISTS (SELECT FROM model_aliases WHERE name = $1) OR (SELECT count(*) FROM model_aliases) < $3::bigint
ON CONFLICT (name) DO UPDATE SET target = EXCLUDED.target, created_at = now()
RETURNING name, target, created_at

-- name: drop_model_alias
DELETE FROM model_aliases WHERE name = $1 RETURNING name, target, created_at

-- name: list_model_aliases
SELECT name, target, created_at FROM model_aliases ORDER BY name LIMIT $1::bigint
