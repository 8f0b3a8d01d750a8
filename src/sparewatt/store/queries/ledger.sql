-- name: ensure_month
SELECT ensure_month($1)

-- name: drop_month
SELECT drop_month($1)

-- name: kept_months
-- The first days of the months that have partitions.
SELECT to_date(right(relid::text, 7), 'YYYY_MM') AS month FROM pg_partition_tree('postings') WHERE isleaf ORDER BY 1

-- name: insert_jobs
-- Returns those that are new. A job that exists was settled before. Nothing of a dropped month is new, since its jobs
-- cannot be compared any more.
INSERT INTO jobs (id, opened_at, closed_at, account_id, key_id, model, state, reason, finish_reason, stream,
    prompt_tokens, completion_tokens, cost_nano, promo_nano)
SELECT id, to_timestamp(opened), to_timestamp(closed), account_id, key_id, model, state, reason, finish_reason, stream,
    prompt_tokens, completion_tokens, cost, promo
FROM unnest($1::text[], $2::float8[], $3::float8[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::boolean[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
    AS new (id, opened, closed, account_id, key_id, model, state, reason, finish_reason, stream,
        prompt_tokens, completion_tokens, cost, promo)
WHERE NOT EXISTS (SELECT 1 FROM dropped_months WHERE month = date_trunc('month', to_timestamp(opened) AT TIME ZONE 'UTC'))
ON CONFLICT (id, opened_at) DO NOTHING RETURNING id

-- name: insert_attempts
INSERT INTO attempts (job_id, opened_at, position, node_id, owner_id, model, outcome, prompt_tokens, completion_tokens,
    claimed_tokens, prompt_price, completion_price, net_nano, net_promo_nano, fee_nano, first_token_ms, duration_ms)
SELECT job_id, to_timestamp(opened), position, node_id, owner_id, model, outcome, prompt_tokens, completion_tokens,
    claimed_tokens, prompt_price, completion_price, net, net_promo, fee, first_token_ms, duration_ms
FROM unnest($1::text[], $2::float8[], $3::smallint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::float8[], $17::float8[])
    AS new (job_id, opened, position, node_id, owner_id, model, outcome, prompt_tokens, completion_tokens,
        claimed_tokens, prompt_price, completion_price, net, net_promo, fee, first_token_ms, duration_ms)

-- name: insert_postings
INSERT INTO postings (cause, at, account, nano)
SELECT cause, to_timestamp(at), account, nano
FROM unnest($1::text[], $2::float8[], $3::text[], $4::bigint[]) AS new (cause, at, account, nano)

-- name: add_to_balances
-- Locks in the order of names, so that two gateways never deadlock.
INSERT INTO balances (account, nano)
SELECT account, nano FROM unnest($1::text[], $2::bigint[]) AS new (account, nano) ORDER BY account
ON CONFLICT (account) DO UPDATE SET nano = balances.nano + excluded.nano

-- name: use_slices
UPDATE slices SET nano = greatest(0, slices.nano - used.nano)
FROM unnest($2::text[], $3::bigint[]) AS used (account, nano)
WHERE slices.account = used.account AND slices.instance = $1

-- name: lock_balance
SELECT nano FROM balances WHERE account = $1 FOR UPDATE

-- name: lock_balances
SELECT 1 FROM balances WHERE account = ANY ($1::text[]) ORDER BY account FOR UPDATE

-- name: sliced_by_others
-- With what an exit of the account lacks: the next that is free is for that.
SELECT (coalesce(sum(nano), 0) + (SELECT coalesce(sum(h.lacking_nano), 0) FROM credit_holds h
    WHERE h.lacking_nano > 0 AND h.account_id = split_part($1, ':', 2) AND $1 LIKE 'credits:%'))::bigint
FROM slices WHERE account = $1 AND instance <> $2

-- name: accounts_leaving
-- Whose exit asks for more than could be held.
SELECT DISTINCT account_id FROM credit_holds WHERE lacking_nano > 0 LIMIT $1

-- name: set_slice
INSERT INTO slices (account, instance, nano) VALUES ($1, $2, $3)
ON CONFLICT (account, instance) DO UPDATE SET nano = excluded.nano

-- name: return_slices
DELETE FROM slices WHERE account = ANY ($1::text[]) AND instance = $2

-- name: drop_slices
DELETE FROM slices WHERE instance = $1

-- name: insert_transfer
INSERT INTO transfers (cause, at, kind, account_id, nano, expires_at, memo)
VALUES ($1, to_timestamp($2::float8), $3, $4, $5, to_timestamp($6::float8), $7)
ON CONFLICT (cause) DO NOTHING RETURNING cause

-- name: find_transfer
SELECT account_id, nano FROM transfers WHERE cause = $1

-- name: find_transfer_memo
SELECT account_id, memo FROM transfers WHERE cause = $1 AND memo IS NOT NULL

-- name: insert_transfers
-- Transfers that are known to be new: one that is not aborts the transaction.
INSERT INTO transfers (cause, at, kind, account_id, nano, expires_at, memo)
SELECT cause, to_timestamp(at), kind, account_id, nano, to_timestamp(expires_at), memo
FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[], $5::bigint[], $6::float8[], $7::text[])
    AS new (cause, at, kind, account_id, nano, expires_at, memo)

-- name: overdrawn
-- Accounts with less than gateways have reserved of them, or less than zero.
SELECT b.account FROM balances b
WHERE b.account = ANY ($1::text[])
  AND b.nano < (SELECT coalesce(sum(s.nano), 0) FROM slices s WHERE s.account = b.account)

-- name: balances_of
SELECT account, nano FROM balances WHERE account = ANY ($1::text[])

-- name: spent_by_key
SELECT coalesce(sum(cost_nano), 0)::bigint FROM jobs WHERE key_id = $1 AND opened_at >= to_timestamp($2::float8)

-- name: promo_to_expire
-- Accounts with more promo credits than their unexpired grants and slices: some of their grants have expired.
SELECT b.account, b.nano, live.nano AS unexpired, taken.nano AS sliced
FROM balances b
CROSS JOIN LATERAL (SELECT coalesce(sum(t.nano), 0)::bigint AS nano FROM transfers t
    WHERE t.account_id = substr(b.account, 7) AND t.kind = 'grant'
        AND (t.expires_at IS NULL OR t.expires_at > to_timestamp($1::float8))) AS live
CROSS JOIN LATERAL (SELECT coalesce(sum(s.nano), 0)::bigint AS nano FROM slices s WHERE s.account = b.account) AS taken
WHERE b.account LIKE 'promo:%' AND b.nano > live.nano + taken.nano
LIMIT 1000

-- name: rebuild_balances
-- From the postings, and the sums carried over from dropped months.
WITH truth AS (
    SELECT account, sum(nano)::bigint AS nano
    FROM (SELECT account, nano FROM postings WHERE account NOT LIKE 'job:%' UNION ALL SELECT account, nano FROM carried)
        AS lines
    GROUP BY account)
INSERT INTO balances (account, nano) SELECT account, nano FROM truth ORDER BY account
ON CONFLICT (account) DO UPDATE SET nano = excluded.nano WHERE balances.nano <> excluded.nano

-- name: empty_balances
UPDATE balances SET nano = 0 WHERE account NOT IN (
    SELECT account FROM postings WHERE account NOT LIKE 'job:%' UNION SELECT account FROM carried)

-- name: lock_books
LOCK TABLE balances IN EXCLUSIVE MODE

-- name: audit
-- Everything that must be zero: the sum of all postings, causes that do not balance, clearing accounts that are not
-- empty, balances that are not what their postings say.
SELECT
    (SELECT coalesce(sum(nano), 0) FROM postings)
        + (SELECT coalesce(sum(nano), 0) FROM carried) AS total,
    (SELECT count(*) FROM (SELECT 1 FROM postings GROUP BY cause HAVING sum(nano) <> 0) AS c) AS unbalanced_causes,
    (SELECT count(*) FROM (SELECT 1 FROM postings WHERE account LIKE 'job:%' GROUP BY account HAVING sum(nano) <> 0)
        AS c) AS open_clearing_accounts,
    (SELECT count(*) FROM (
        SELECT coalesce(t.account, b.account)
        FROM (SELECT account, sum(nano)::bigint AS nano FROM (
                SELECT account, nano FROM postings WHERE account NOT LIKE 'job:%'
                UNION ALL SELECT account, nano FROM carried) AS lines GROUP BY account) AS t
        FULL JOIN balances b ON b.account = t.account
        WHERE coalesce(t.nano, 0) <> coalesce(b.nano, 0)) AS d) AS wrong_balances,
    (SELECT count(*) FROM balances b WHERE b.nano < 0
        AND b.account NOT IN ('network:deposits', 'network:grants', 'network:shortfall')) AS overdrawn

-- name: insert_receipts
INSERT INTO receipts (job_id, node_id, at, prompt_tokens, completion_tokens, seen_tokens, disputed, signature, proof)
SELECT job_id, node_id, to_timestamp(at), prompt_tokens, completion_tokens, seen_tokens, disputed, signature, proof
FROM unnest($1::text[], $2::text[], $3::float8[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[], $8::bytea[],
    $9::bytea[])
    AS new (job_id, node_id, at, prompt_tokens, completion_tokens, seen_tokens, disputed, signature, proof)
ON CONFLICT (job_id, node_id, at) DO NOTHING

-- name: standing_of
-- Locks the balances, in the order of names as `add_to_balances` does.
SELECT account, nano FROM balances WHERE account = ANY ($1::text[]) ORDER BY account FOR UPDATE

-- name: count_grant
-- Counts one more of this digest today, unless it has reached the limit.
INSERT INTO grant_counts AS c (who, day, grants) SELECT $1, $2, 1 WHERE $3::int > 0
ON CONFLICT (who, day) DO UPDATE SET grants = c.grants + 1 WHERE c.grants < $3 RETURNING c.grants

-- name: forget_grant_counts
DELETE FROM grant_counts WHERE day < (now() AT TIME ZONE 'UTC')::date - 1

-- name: moved
SELECT kind, sum(nano)::bigint AS nano FROM transfers WHERE account_id = $1 GROUP BY kind

-- name: reserved
SELECT coalesce(sum(nano), 0)::bigint FROM slices WHERE account = ANY ($1::text[])

-- name: promo_ends_at
SELECT min(expires_at) FROM transfers
WHERE account_id = $1 AND kind = 'grant' AND expires_at > to_timestamp($2::float8)

-- name: promo_incomes
SELECT substr(account, length('promo_earned:') + 1) AS owner_id, nano FROM balances
WHERE account LIKE 'promo\_earned:%' AND nano > 0 ORDER BY nano DESC, account LIMIT $1

-- name: redeemed_since
SELECT coalesce(sum(nano), 0)::bigint FROM transfers WHERE kind = 'redeem' AND at >= to_timestamp($1::float8)
