-- name: lock_chain_requests_of
-- Of two requests of an account at once, the second counts the first.
SELECT pg_advisory_xact_lock(hashtextextended('chain_requests:' || $1, 0))

-- name: ask_of_chain
-- Inserts nothing if the request exists, or if the account has too many open or of this kind in the last time. Wakes the
-- chain's process.
WITH asked AS (
    INSERT INTO chain_requests (id, kind, account_id, address, micro, params)
    SELECT $1::text, $2::text, $3::text, $4::text, $5::bigint, $6::jsonb
    WHERE (SELECT count(*) FROM chain_requests WHERE account_id = $3 AND state IN ('asked', 'decided')) < $7
        AND (SELECT count(*) FROM chain_requests WHERE account_id = $3 AND kind = $2
            AND asked_at > now() - make_interval(secs => $9)) < $8
    ON CONFLICT (id) DO NOTHING RETURNING id)
SELECT id, pg_notify('chain_requests', '') FROM asked

-- name: chain_request_use
-- How many requests of an account are under way, and in how many seconds each of this kind leaves the last time.
SELECT count(*) FILTER (WHERE state IN ('asked', 'decided')) AS under_way,
    coalesce(array_agg(extract(epoch FROM asked_at - now())::float8 + $3 ORDER BY asked_at)
        FILTER (WHERE kind = $2 AND asked_at > now() - make_interval(secs => $3)), '{}') AS recent_left_s
FROM chain_requests WHERE account_id = $1

-- name: find_chain_request
SELECT id, kind, account_id, address, micro, params, state, step, more_steps, reason, tx, result
FROM chain_requests WHERE id = $1

-- name: count_finished_chain_requests
SELECT count(*) FROM chain_requests WHERE address = $1 AND kind = $2 AND state IN ('done', 'failed')

-- name: chain_requests_asked
-- One per address at a time: the nonces in its signatures follow those of the request before.
SELECT id, kind, account_id, address, micro, params, state, step, more_steps, reason, tx, result FROM (
    SELECT DISTINCT ON (address) * FROM chain_requests r
    WHERE state = 'asked' AND due_at <= now()
        AND NOT EXISTS (SELECT FROM chain_requests o WHERE o.address = r.address AND o.state = 'decided')
    ORDER BY address, asked_at, id) AS first
ORDER BY asked_at, id LIMIT $1

-- name: chain_requests_decided
-- Those that can be finished come first, so that many that are stuck do not hide them.
SELECT id, kind, account_id, address, micro, params, state, step, more_steps, reason, tx, result FROM chain_requests r
WHERE state = 'decided'
ORDER BY EXISTS (SELECT FROM chain_outbox o
    WHERE o.request_id = r.id AND o.state IN ('decided', 'signed', 'sent', 'mined')), changed_at, id
LIMIT $1

-- name: outbox_of_request
SELECT state, reason, tx_hash FROM chain_outbox WHERE request_id = $1 ORDER BY id

-- name: note_request_decided
UPDATE chain_requests SET state = 'decided', more_steps = $3, changed_at = now()
WHERE id = $1 AND state = 'asked' AND step = $2 RETURNING id

-- name: decide_request_outbox
INSERT INTO chain_outbox (business_id, sender, recipient, data, gas_limit, request_id) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (business_id) DO NOTHING

-- name: begin_next_request_step
UPDATE chain_requests SET state = 'asked', step = step + 1, more_steps = false, due_at = now(), changed_at = now()
WHERE id = $1 AND state IN ('asked', 'decided') AND step = $2

-- name: postpone_chain_request
UPDATE chain_requests SET due_at = now() + make_interval(secs => $2) WHERE id = $1 AND state = 'asked'

-- name: note_request_result
UPDATE chain_requests SET result = $2::jsonb WHERE id = $1 AND state IN ('asked', 'decided')

-- name: end_chain_request
UPDATE chain_requests SET state = $2, reason = $3, tx = $4, changed_at = now()
WHERE id = $1 AND state IN ('asked', 'decided')

-- name: forget_claim_requests
DELETE FROM chain_requests WHERE kind = 'claim'
