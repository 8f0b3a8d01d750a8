-- name: insert_response
-- Inserts nothing if the key stores as many, or as much, as it may.
INSERT INTO responses (id, key_id, previous_id, input, expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, now() + make_interval(secs => $5)
WHERE (SELECT count(*) < $6 AND coalesce(sum(bytes), 0) + length($4::bytea) <= $7
       FROM responses WHERE key_id = $2 AND expires_at > now())
RETURNING expires_at

-- name: insert_transient_response
-- Returns also whether the key has more than it may: the oldest go then.
WITH kept AS (
    INSERT INTO transient_responses (id, key_id, previous_id, status, input, output, expires_at)
    VALUES ($1::text, $2::text, $3::text, $4::text, $5::bytea, $6::bytea, now() + make_interval(secs => $7))
    RETURNING expires_at, bytes)
SELECT expires_at, (SELECT count(*) >= $8 OR coalesce(sum(t.bytes), 0) + kept.bytes > $9
                    FROM transient_responses t WHERE t.key_id = $2) AS is_full
FROM kept

-- name: trim_transient_responses
-- The newest stay, up to this number and size.
DELETE FROM transient_responses WHERE key_id = $1 AND id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER newest AS place, sum(bytes) OVER newest AS total
        FROM transient_responses WHERE key_id = $1
        WINDOW newest AS (ORDER BY created_at DESC, id ROWS UNBOUNDED PRECEDING)) ranked
    WHERE place > $2 OR total > $3)

-- name: finish_response
-- A response that was deleted meanwhile stays deleted.
WITH stored AS (
    UPDATE responses SET status = $2, output = $3, tended_at = now()
    WHERE id = $1 AND status = 'in_progress' RETURNING id),
transient AS (
    UPDATE transient_responses SET status = $2, output = $3, tended_at = now()
    WHERE id = $1 AND status = 'in_progress' RETURNING id)
SELECT id FROM stored UNION ALL SELECT id FROM transient

-- name: find_responses
-- What is past its time is not found, whether it was deleted already or not.
SELECT id, previous_id, status, input, output, created_at, expires_at, is_stored,
       status = 'in_progress' AND tended_at < now() - make_interval(secs => $3) AS abandoned
FROM kept_responses WHERE id = ANY ($1::text[]) AND key_id = $2 AND expires_at > now()

-- name: response_chain
-- A response and those that it continues, the newest first.
WITH RECURSIVE chain AS (
    SELECT id, previous_id, status, input, output, created_at, expires_at, is_stored, 1 AS depth
    FROM kept_responses WHERE id = $1 AND key_id = $2 AND expires_at > now()
    UNION ALL
    SELECT r.id, r.previous_id, r.status, r.input, r.output, r.created_at, r.expires_at, r.is_stored, c.depth + 1
    FROM chain c JOIN kept_responses r ON r.id = c.previous_id
    WHERE r.key_id = $2 AND r.expires_at > now() AND c.depth < $3)
SELECT id, previous_id, status, input, output, created_at, expires_at, is_stored, false AS abandoned
FROM chain ORDER BY depth

-- name: delete_response
WITH stored AS (DELETE FROM responses WHERE id = $1 AND key_id = $2 RETURNING id),
transient AS (DELETE FROM transient_responses WHERE id = $1 AND key_id = $2 RETURNING id)
SELECT id FROM stored UNION ALL SELECT id FROM transient

-- name: ask_to_cancel_response
WITH stored AS (
    UPDATE responses SET cancel_asked = true WHERE id = $1 AND key_id = $2 AND status = 'in_progress')
UPDATE transient_responses SET cancel_asked = true WHERE id = $1 AND key_id = $2 AND status = 'in_progress'

-- name: tend_responses
-- A heartbeat for running responses. Returns whether each shall be cancelled.
WITH stored AS (
    UPDATE responses SET tended_at = now()
    WHERE id = ANY ($1::text[]) AND status = 'in_progress' RETURNING id, cancel_asked),
transient AS (
    UPDATE transient_responses SET tended_at = now()
    WHERE id = ANY ($1::text[]) AND status = 'in_progress' RETURNING id, cancel_asked)
SELECT id, cancel_asked FROM stored UNION ALL SELECT id, cancel_asked FROM transient

-- name: forget_old_responses
-- Those of revoked keys as well: they cannot be read any more.
WITH stored AS (
    DELETE FROM responses r WHERE r.expires_at <= now()
        OR EXISTS (SELECT FROM api_keys k WHERE k.id = r.key_id AND k.revoked_at IS NOT NULL))
DELETE FROM transient_responses r WHERE r.expires_at <= now()
    OR EXISTS (SELECT FROM api_keys k WHERE k.id = r.key_id AND k.revoked_at IS NOT NULL)
