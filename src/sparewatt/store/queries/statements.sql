-- name: usage_by
-- By day (UTC), model or key, ordered by name.
SELECT name, count(*) AS jobs, sum(prompt_tokens)::bigint AS prompt_tokens,
    sum(completion_tokens)::bigint AS completion_tokens,
    sum(cost_nano)::bigint AS cost_nano, sum(promo_nano)::bigint AS promo_nano
FROM (SELECT CASE $2 WHEN 'day' THEN to_char(opened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')
        WHEN 'model' THEN model ELSE key_id END COLLATE "C" AS name,
        prompt_tokens, completion_tokens, cost_nano, promo_nano
    FROM jobs WHERE account_id = $1 AND opened_at >= to_timestamp($3::float8) AND opened_at < to_timestamp($4::float8)
        AND ($5::text IS NULL OR key_id = $5)) AS lines
WHERE name > $6 GROUP BY name ORDER BY name LIMIT $7

-- name: jobs_of
SELECT id, opened_at, closed_at, account_id, key_id, model, state, reason, finish_reason, stream, prompt_tokens,
    completion_tokens, cost_nano, promo_nano
FROM jobs WHERE account_id = $1 AND opened_at >= to_timestamp($2::float8) AND opened_at < to_timestamp($3::float8)
    AND ($4::text IS NULL OR key_id = $4)
    AND ($5::float8 IS NULL OR (opened_at, id) < (to_timestamp($5::float8), $6::text))
ORDER BY opened_at DESC, id DESC LIMIT $7

-- name: find_job
SELECT id, opened_at, closed_at, account_id, key_id, model, state, reason, finish_reason, stream, prompt_tokens,
    completion_tokens, cost_nano, promo_nano
FROM jobs WHERE id = $1 ORDER BY opened_at LIMIT 1

-- name: attempts_of_job
SELECT job_id, opened_at, position, node_id, model, outcome, prompt_tokens, completion_tokens, prompt_price,
    completion_price, fee_nano, net_nano, net_promo_nano, first_token_ms, duration_ms
FROM attempts WHERE job_id = $1 AND opened_at = $2 ORDER BY position

-- name: earnings_of
SELECT job_id, opened_at, position, node_id, model, outcome, prompt_tokens, completion_tokens, prompt_price,
    completion_price, fee_nano, net_nano, net_promo_nano, first_token_ms, duration_ms
FROM attempts WHERE owner_id = $1 AND opened_at >= to_timestamp($2::float8) AND opened_at < to_timestamp($3::float8)
    AND ($4::text IS NULL OR node_id = $4)
    AND ($5::float8 IS NULL OR (opened_at, job_id, position) < (to_timestamp($5::float8), $6::text, $7::smallint))
ORDER BY opened_at DESC, job_id DESC, position DESC LIMIT $8

-- name: earnings_by
SELECT name, count(*) AS jobs, sum(prompt_tokens)::bigint AS prompt_tokens,
    sum(completion_tokens)::bigint AS completion_tokens, sum(fee_nano)::bigint AS fee_nano,
    sum(net_nano)::bigint AS net_nano, sum(net_promo_nano)::bigint AS net_promo_nano
FROM (SELECT CASE $2 WHEN 'day' THEN to_char(opened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')
        WHEN 'model' THEN model ELSE node_id END COLLATE "C" AS name,
        prompt_tokens, completion_tokens, fee_nano, net_nano, net_promo_nano
    FROM attempts WHERE owner_id = $1 AND opened_at >= to_timestamp($3::float8)
        AND opened_at < to_timestamp($4::float8) AND ($5::text IS NULL OR node_id = $5)) AS lines
WHERE name > $6 GROUP BY name ORDER BY name LIMIT $7

-- name: busy_of
-- The time in which a node had at least one job, however many ran in parallel. A later attempt of a job began when the
-- ones before it had ended.
SELECT node_id, first_at, work_ms / 1000 AS work_s,
    coalesce((SELECT extract(epoch FROM sum(upper(r) - lower(r))) FROM unnest(times) AS r), 0)::float8 AS busy_s
FROM (SELECT node_id, min(opened_at) AS first_at, sum(duration_ms) AS work_ms,
        range_agg(tstzrange(began_at, began_at + duration_ms * interval '1 millisecond')) AS times
    FROM (SELECT a.node_id, a.opened_at, a.duration_ms, CASE a.position WHEN 0 THEN a.opened_at
            ELSE a.opened_at + interval '1 millisecond' * coalesce((SELECT sum(b.duration_ms) FROM attempts b
                WHERE b.job_id = a.job_id AND b.opened_at = a.opened_at AND b.position < a.position), 0) END AS began_at
        FROM attempts a WHERE a.owner_id = $1 AND a.opened_at >= to_timestamp($2::float8)
            AND a.opened_at < to_timestamp($3::float8)) AS attempts_with_start
    GROUP BY node_id) AS worked
ORDER BY node_id LIMIT $4
