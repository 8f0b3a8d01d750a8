-- name: save_lease_match
-- Wakes the chain's process with a first certificate: it submits it if nobody else has.
WITH saved AS (
    INSERT INTO lease_matches AS m (order_id, attempt, opened_at, evidence, certificate, certified_at)
    VALUES ($1, $2, $3, $4, $5, CASE WHEN $5::text IS NULL THEN NULL ELSE now() END)
    ON CONFLICT (order_id, attempt) DO UPDATE SET evidence = excluded.evidence, version = m.version + 1,
        opened_at = excluded.opened_at, changed_at = now(),
        certificate = coalesce(m.certificate, excluded.certificate),
        certified_at = coalesce(m.certified_at, excluded.certified_at)
    RETURNING certified_at)
SELECT CASE WHEN certified_at = now() THEN pg_notify('chain_requests', '') END FROM saved

-- name: save_lease_match_record
UPDATE lease_matches SET record = $3, record_from = $4, version = version + 1, changed_at = now()
WHERE order_id = $1 AND attempt = $2 AND record IS NULL

-- name: find_lease_match
SELECT order_id, attempt, version, evidence, certificate, record_from FROM lease_matches
WHERE order_id = $1 AND attempt = $2

-- name: lease_match_version
SELECT version FROM lease_matches WHERE order_id = $1 AND attempt = $2

-- name: find_lease_match_record
SELECT record FROM lease_matches WHERE order_id = $1 AND attempt = $2

-- name: lease_match_attempts
SELECT attempt FROM lease_matches WHERE order_id = $1 ORDER BY attempt DESC LIMIT $2

-- name: recent_certificates
SELECT order_id, attempt, certificate, extract(epoch FROM now() - certified_at)::float8 AS age_s FROM lease_matches
WHERE certificate IS NOT NULL AND certified_at > now() - make_interval(secs => $1) ORDER BY certified_at LIMIT $2

-- name: recent_lease_votes
SELECT order_id, attempt, coalesce(evidence::jsonb -> 'votes', '[]')::text AS votes FROM (
    SELECT order_id, attempt, evidence, changed_at FROM lease_matches WHERE octet_length(evidence) <= $1
    ORDER BY changed_at DESC LIMIT $2) AS newest
ORDER BY changed_at DESC

-- name: forget_lease_records
UPDATE lease_matches SET record = NULL, record_from = NULL WHERE record IS NOT NULL AND changed_at <= (
    SELECT changed_at FROM lease_matches WHERE record IS NOT NULL ORDER BY changed_at DESC OFFSET $1 LIMIT 1)

-- name: forget_lease_matches
DELETE FROM lease_matches WHERE changed_at < now() - make_interval(days => $1) OR changed_at <= (
    SELECT changed_at FROM lease_matches ORDER BY changed_at DESC OFFSET $2 LIMIT 1)

-- name: find_acceptance
SELECT tx_hash, unix_s FROM chain_events
WHERE contract = 'task_manager' AND event IN ('MatchAccepted', 'NoMatch') AND args->>'order_id' = $1
    AND (args->>'attempt')::int = $2
ORDER BY block_number DESC LIMIT 1

-- name: forget_matches_of_chain
-- An order of another chain may have the same id.
DELETE FROM lease_matches
