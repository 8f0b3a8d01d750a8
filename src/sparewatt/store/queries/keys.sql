-- name: insert_key
-- Inserts nothing if the account has as many keys as it may.
INSERT INTO api_keys (id, account_id, hash, prefix, scopes,
    name, policy, budget_nano, budget_period, expires_at, requests_per_min, tokens_per_min)
SELECT $1, $2, $3, $4, $5, $6, $7::json, $8, $9, $10, $11, $12
WHERE (SELECT count(*) FROM api_keys WHERE account_id = $2 AND revoked_at IS NULL) < $13
RETURNING id

-- name: find_key
SELECT * FROM known_keys WHERE id = $1

-- name: find_key_by_hash
SELECT * FROM known_keys WHERE hash = $1

-- name: list_keys
-- Of one account, or of all with NULL.
SELECT * FROM known_keys WHERE $1::text IS NULL OR account_id = $1 ORDER BY created_at, id LIMIT $2

-- name: revoke_key
-- Revoking twice keeps the first date. With an account, only a key of that account.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), version = nextval('api_key_version')
WHERE id = $1 AND ($2::text IS NULL OR account_id = $2) RETURNING id

-- name: lock_key
SELECT id FROM api_keys WHERE id = $1 AND ($2::text IS NULL OR account_id = $2) FOR UPDATE

-- name: change_key
UPDATE api_keys SET name = $2, policy = $3::json, budget_nano = $4, budget_period = $5, expires_at = $6,
    requests_per_min = $7, tokens_per_min = $8, version = nextval('api_key_version') WHERE id = $1

-- name: keys_changed_since
-- Changes of the key or of its account. A few versions back, since a transaction with a lower version may commit later.
SELECT * FROM known_keys WHERE id IN (
    SELECT id FROM api_keys WHERE version > $1 - 100
    UNION
    SELECT k.id FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE a.version > $1 - 100)
ORDER BY version LIMIT $2

-- name: note_keys_used
-- No new version: other gateways need not know when a key was used.
UPDATE api_keys SET last_used_at = now() WHERE id = ANY ($1::text[])
