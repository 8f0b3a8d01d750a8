-- name: insert_response
-- Inserts nothing if the key stores as many, or as much, as it may.
INSERT INTO responses (id, key_id, previous_id, input, expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, now() + make_interval(secs => $5)
WHERE (SELECT count(*) < $6 AND coalesce(sum(bytes), 0) + length($4::bytea) <= $7
       FROM responses WHERE key_id = $2 AND expires_at > now())
RETURNING expires_at

-- name: finish_response
-- A response that was deleted meanwhile stays deleted.
UPDATE responses SET status = $2, output = $3, tended_at = now()
WHERE id = $1 AND status = 'in_progress' RETURNING id

-- name: find_response
SELECT id, previous_id, status, input, output, created_at, expires_at,
       status = 'in_progress' AND tended_at < now() - make_interval(secs => $3) AS abandoned
FROM responses WHERE id = $1 AND key_id = $2 AND expires_at > now()

-- name: response_chain
-- A response and those that it continues, the newest first.
WITH RECURSIVE chain AS (
    SELECT id, previous_id, status, input, output, created_at, expires_at, 1 AS depth
    FROM responses WHERE id = $1 AND key_id = $2 AND expires_at > now()
    UNION ALL
    SELECT r.id, r.previous_id, r.status, r.input, r.output, r.created_at, r.expires_at, c.depth + 1
    FROM chain c JOIN responses r ON r.id = c.previous_id
    WHERE r.key_id = $2 AND r.expires_at > now() AND c.depth < $3)
SELECT id, previous_id, status, input, output, created_at, expires_at, false AS abandoned FROM chain ORDER BY depth

-- name: delete_response
DELETE FROM responses WHERE id = $1 AND key_id = $2 RETURNING id

-- name: ask_to_cancel_response
UPDATE responses SET cancel_asked = true WHERE id = $1 AND key_id = $2 AND status = 'in_progress' RETURNING id

-- name: tend_responses
-- A heartbeat for running responses. Returns whether each shall be cancelled.
UPDATE responses SET tended_at = now() WHERE id = ANY ($1::text[]) AND status = 'in_progress' RETURNING id, cancel_asked

-- name: forget_old_responses
-- Those of revoked keys as well: they cannot be read any more.
DELETE FROM responses r WHERE r.expires_at <= now()
    OR EXISTS (SELECT FROM api_keys k WHERE k.id = r.key_id AND k.revoked_at IS NOT NULL)
