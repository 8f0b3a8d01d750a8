-- name: ask_of_chain
-- Inserts nothing if the request exists, or if the account has too many open.
INSERT INTO chain_requests (id, kind, account_id, address, micro, epoch)
SELECT $1::text, $2::text, $3::text, $4::text, $5::bigint, $6::bigint
WHERE (SELECT count(*) FROM chain_requests WHERE account_id = $3 AND state IN ('asked', 'decided')) < $7
ON CONFLICT (id) DO NOTHING RETURNING id

-- name: find_chain_request
SELECT id, kind, account_id, address, micro, epoch, state, reason, tx FROM chain_requests WHERE id = $1

-- name: chain_requests_asked
-- One per address at a time: the nonces in its signatures follow those of the request before.
SELECT id, kind, account_id, address, micro, epoch, state, reason, tx FROM (
    SELECT DISTINCT ON (address) * FROM chain_requests r
    WHERE state = 'asked'
        AND NOT EXISTS (SELECT FROM chain_requests o WHERE o.address = r.address AND o.state = 'decided')
    ORDER BY address, asked_at, id) AS first
ORDER BY asked_at, id LIMIT $1

-- name: chain_requests_decided
SELECT id, kind, account_id, address, micro, epoch, state, reason, tx FROM chain_requests
WHERE state = 'decided' ORDER BY changed_at, id LIMIT $1

-- name: note_request_decided
UPDATE chain_requests SET state = 'decided', changed_at = now() WHERE id = $1 AND state = 'asked' RETURNING id

-- name: end_chain_request
UPDATE chain_requests SET state = $2, reason = $3, tx = $4, changed_at = now()
WHERE id = $1 AND state IN ('asked', 'decided')

-- name: forget_claim_requests
DELETE FROM chain_requests WHERE kind = 'claim'
