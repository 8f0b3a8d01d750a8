-- name: add_delivered_tokens
-- Every gateway adds what it billed.
INSERT INTO delivered_tokens (model, owner, day, tokens)
SELECT * FROM unnest($1::text[], $2::text[], $3::date[], $4::bigint[])
ON CONFLICT (model, owner, day) DO UPDATE SET tokens = delivered_tokens.tokens + EXCLUDED.tokens

-- name: delivered_tokens_sums
-- By model and owner, over the last days.
SELECT model, owner, sum(tokens)::bigint AS tokens
FROM delivered_tokens
WHERE day > (now() AT TIME ZONE 'UTC')::date - $1::int
GROUP BY model, owner
ORDER BY sum(tokens) DESC
LIMIT $2

-- name: forget_old_delivered_tokens
DELETE FROM delivered_tokens WHERE day <= (now() AT TIME ZONE 'UTC')::date - $1::int
