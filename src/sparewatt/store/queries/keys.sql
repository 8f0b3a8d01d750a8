-- name: insert_key
INSERT INTO api_keys (id, name, hash, prefix, scopes) VALUES ($1, $2, $3, $4, $5)
RETURNING id, name, hash, prefix, scopes, created_at, revoked_at, version

-- name: find_key_by_hash
SELECT id, name, hash, prefix, scopes, created_at, revoked_at, version FROM api_keys WHERE hash = $1

-- name: list_keys
SELECT id, name, hash, prefix, scopes, created_at, revoked_at, version FROM api_keys ORDER BY created_at, id LIMIT $1

-- name: revoke_key
-- Revoking twice keeps the first date.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), version = nextval('api_key_version') WHERE id = $1
RETURNING id, name, hash, prefix, scopes, created_at, revoked_at, version

-- name: keys_changed_since
-- A few versions back, since a transaction with a lower number may commit later.
SELECT id, name, hash, prefix, scopes, created_at, revoked_at, version FROM api_keys
WHERE version > $1 - 100 ORDER BY version LIMIT $2
