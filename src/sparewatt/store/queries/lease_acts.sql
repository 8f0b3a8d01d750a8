-- name: save_lease_act
-- Wakes the chain's process. The first one with these numbers stays.
WITH saved AS (
    INSERT INTO lease_acts (order_id, term, kind, account, nonce, seq, act)
    SELECT $1, $2, $3, $4, $5, $6, $7
    WHERE (SELECT count(*) FROM lease_acts WHERE order_id = $1 AND account = $4) < $8
    ON CONFLICT DO NOTHING RETURNING 1)
SELECT count(*), CASE WHEN count(*) > 0 THEN pg_notify('chain_requests', '') END FROM saved

-- name: recent_lease_acts
SELECT order_id, account, act FROM lease_acts WHERE stored_at > now() - make_interval(secs => $1)
ORDER BY stored_at DESC LIMIT $2

-- name: save_lease_details
INSERT INTO lease_details (details_hash, order_id, document) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: find_lease_details
SELECT document FROM lease_details WHERE details_hash = $1 AND order_id = $2

-- name: save_lease_key_nonce
-- Gateways are told: nodes sign with it next.
WITH saved AS (
    INSERT INTO lease_key_nonces AS k (account, contract, nonce) VALUES ($1, $2, $3)
    ON CONFLICT (account, contract) DO UPDATE SET nonce = excluded.nonce WHERE k.nonce <> excluded.nonce RETURNING 1)
SELECT count(*), CASE WHEN count(*) > 0 THEN pg_notify('market_events', '') END FROM saved

-- name: list_lease_key_nonces
SELECT contract, nonce FROM lease_key_nonces WHERE account = $1

-- name: save_lease_secret
-- Gateways are woken: a node may wait for it.
WITH saved AS (
    INSERT INTO lease_secrets (order_id, attempt, provider, name, sealed) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (order_id, attempt, provider, name) DO UPDATE SET sealed = excluded.sealed, stored_at = now()
    RETURNING 1)
SELECT pg_notify('market_events', '') FROM saved

-- name: list_lease_secrets
SELECT name, sealed FROM lease_secrets WHERE order_id = $1 AND attempt = $2 AND provider = $3 ORDER BY name LIMIT $4

-- name: forget_lease_acts
DELETE FROM lease_acts WHERE stored_at < now() - make_interval(days => $1)

-- name: forget_lease_secrets
DELETE FROM lease_secrets WHERE stored_at < now() - make_interval(days => $1)

-- name: forget_lease_acts_of_chain
-- Orders of another chain may have the same ids.
WITH acts AS (DELETE FROM lease_acts), nonces AS (DELETE FROM lease_key_nonces),
    details AS (DELETE FROM lease_details)
DELETE FROM lease_secrets
