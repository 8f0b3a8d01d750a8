-- name: insert_account
-- An account that exists stays as it is.
INSERT INTO accounts (id, name, role, chain_address, chain_key) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING

-- name: find_account
SELECT a.id, a.name, a.role, a.policy, a.chain_address, a.created_at, a.closed_at, l.email
FROM accounts a LEFT JOIN logins l ON l.account_id = a.id WHERE a.id = $1 OR l.email = $1

-- name: list_accounts
SELECT a.id, a.name, a.role, a.policy, a.chain_address, a.created_at, a.closed_at, l.email
FROM accounts a LEFT JOIN logins l ON l.account_id = a.id
WHERE $1::text IS NULL OR (a.created_at, a.id) > (SELECT created_at, id FROM accounts WHERE id = $1)
ORDER BY a.created_at, a.id LIMIT $2

-- name: describe_account
UPDATE accounts SET name = $2, policy = $3::json, version = nextval('api_key_version') WHERE id = $1

-- name: set_role
UPDATE accounts SET role = $2, version = nextval('api_key_version') WHERE id = $1

-- name: make_owner
UPDATE accounts SET role = 'owner', version = nextval('api_key_version') WHERE id = $1 AND role = 'user' RETURNING id

-- name: close_account
-- Closing twice keeps the first date.
UPDATE accounts SET closed_at = coalesce(closed_at, now()), version = nextval('api_key_version') WHERE id = $1

-- name: accounts_without_chain_key
SELECT id FROM accounts WHERE chain_address IS NULL ORDER BY id LIMIT $1

-- name: set_chain_key
-- Never replaces a key: that would lose the tokens at its address.
UPDATE accounts SET chain_address = $2, chain_key = $3 WHERE id = $1 AND chain_address IS NULL

-- name: account_at
SELECT id FROM accounts WHERE chain_address = $1

-- name: find_chain_key_at
SELECT chain_key FROM accounts WHERE id = $1 AND chain_address = $2
UNION ALL SELECT chain_key FROM former_chain_keys WHERE account_id = $1 AND address = $2

-- name: insert_network_secret
INSERT INTO network_secret (fingerprint) VALUES ($1) ON CONFLICT (only_row) DO NOTHING

-- name: network_secret
SELECT fingerprint FROM network_secret

-- name: insert_login
INSERT INTO logins (email, account_id, password_hash) VALUES ($1, $2, $3) ON CONFLICT (email) DO NOTHING
RETURNING account_id

-- name: find_login
SELECT l.email, l.account_id, l.password_hash, a.closed_at IS NOT NULL AS closed
FROM logins l JOIN accounts a ON a.id = l.account_id WHERE l.email = $1

-- name: find_login_of_account
SELECT l.email, l.account_id, l.password_hash, a.closed_at IS NOT NULL AS closed
FROM logins l JOIN accounts a ON a.id = l.account_id WHERE l.account_id = $1

-- name: set_password
UPDATE logins SET password_hash = $2, changed_at = now() WHERE account_id = $1

-- name: insert_session
INSERT INTO sessions (hash, account_id, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))

-- name: find_session
SELECT s.hash, s.account_id, a.role, a.policy AS account_policy, s.expires_at
FROM sessions s JOIN accounts a ON a.id = s.account_id
WHERE s.hash = $1 AND s.expires_at > now() AND a.closed_at IS NULL

-- name: end_session
DELETE FROM sessions WHERE hash = $1

-- name: end_other_sessions
-- All sessions of an account but one; all with an empty hash.
DELETE FROM sessions WHERE account_id = $1 AND hash <> $2

-- name: end_oldest_sessions
-- All sessions of an account but the newest.
DELETE FROM sessions WHERE account_id = $1 AND hash NOT IN
    (SELECT hash FROM sessions WHERE account_id = $1 ORDER BY created_at DESC, hash LIMIT $2)

-- name: insert_reset
INSERT INTO password_resets (hash, account_id, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))
RETURNING expires_at

-- name: use_reset
UPDATE password_resets SET used_at = now() WHERE hash = $1 AND used_at IS NULL AND expires_at > now()
RETURNING account_id

-- name: insert_login_link
INSERT INTO login_links (hash, account_id, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))
RETURNING expires_at

-- name: use_login_link
-- A closed account's link opens nothing.
DELETE FROM login_links USING accounts
WHERE hash = $1 AND login_links.expires_at > now() AND accounts.id = account_id AND closed_at IS NULL
RETURNING account_id

-- name: insert_invite
INSERT INTO invites (hash, created_by, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))
RETURNING expires_at

-- name: use_invite
UPDATE invites SET used_by = $2 WHERE hash = $1 AND used_by IS NULL AND expires_at > now() RETURNING hash

-- name: forget_old_sessions
DELETE FROM sessions WHERE expires_at < now()

-- name: forget_old_resets
DELETE FROM password_resets WHERE expires_at < now() - interval '30 days'

-- name: forget_old_login_links
DELETE FROM login_links WHERE expires_at < now()

-- name: forget_old_invites
DELETE FROM invites WHERE used_by IS NULL AND expires_at < now() - interval '30 days'
