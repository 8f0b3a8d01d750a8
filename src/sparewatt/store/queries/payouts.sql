-- name: lock_payouts
-- One batch at a time, over all gateways.
SELECT pg_advisory_xact_lock(hashtext('sparewatt payouts'))

-- name: last_batch
SELECT epoch, extract(epoch FROM at)::float8 AS unix_s FROM payout_batches WHERE pool = $1
ORDER BY epoch DESC LIMIT 1

-- name: leaves_at
-- The last leaf of every address up to a batch. The order is that of the tree.
SELECT DISTINCT ON (address) address, account_id, earned_micro, spent_micro, added_micro FROM payout_leaves
WHERE pool = $4 AND epoch <= $1 AND address > $2 ORDER BY address, epoch DESC LIMIT $3

-- name: standings
-- Accounts with a chain address that have earned a whole micro-dollar, or ever bought credits. What is reserved in spite
-- of an exit, for $2 seconds or more, counts as spent: it may be, after the chain has paid the exit.
SELECT a.id AS account_id, a.chain_address AS address, greatest(0, coalesce(e.nano, 0)) AS unpaid,
    greatest(0, coalesce(d.nano, 0) - coalesce(c.nano, 0) + coalesce(r.nano, 0)) AS spent
FROM accounts a
LEFT JOIN balances e ON e.account = 'earned:' || a.id
LEFT JOIN balances c ON c.account = 'credits:' || a.id
LEFT JOIN (SELECT account_id, sum(CASE kind WHEN 'deposit' THEN nano ELSE -nano END)::bigint AS nano FROM transfers
    WHERE kind IN ('deposit', 'exit') GROUP BY account_id) AS d ON d.account_id = a.id
LEFT JOIN (SELECT h.account_id, least(sum(h.lacking_nano), (SELECT coalesce(sum(s.nano), 0) FROM slices s
        WHERE s.account = 'credits:' || h.account_id
            AND s.instance NOT IN (SELECT 'hold:' || id FROM credit_holds WHERE purpose = 'exit')))::bigint AS nano
    FROM credit_holds h WHERE h.lacking_nano > 0 AND h.at < now() - make_interval(secs => $2)
    GROUP BY h.account_id) AS r ON r.account_id = a.id
WHERE a.chain_address IS NOT NULL AND (e.nano >= 1000 OR d.nano IS NOT NULL)
ORDER BY a.chain_address LIMIT $1

-- name: insert_batch
INSERT INTO payout_batches (epoch, at, root, leaves, promised_micro, added_micro, pool)
VALUES ($1, to_timestamp($2::float8), $3, $4, $5, $6, $7)

-- name: insert_leaves
INSERT INTO payout_leaves (address, epoch, account_id, earned_micro, spent_micro, added_micro, pool)
SELECT new.*, $7 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS new

-- name: batches
SELECT epoch, extract(epoch FROM at)::float8 AS unix_s, root, leaves, promised_micro, added_micro,
    extract(epoch FROM posted_at)::float8 AS posted_unix_s, posted_tx, is_ripe, struck_at IS NOT NULL AS is_struck, strikes
FROM payout_batches WHERE pool = $3 AND ($1::bigint IS NULL OR epoch < $1) ORDER BY epoch DESC LIMIT $2

-- name: find_batch
SELECT epoch, extract(epoch FROM at)::float8 AS unix_s, root, leaves, promised_micro, added_micro,
    extract(epoch FROM posted_at)::float8 AS posted_unix_s, posted_tx, is_ripe, struck_at IS NOT NULL AS is_struck, strikes
FROM payout_batches WHERE pool = $2 AND epoch = $1

-- name: paid_to
SELECT l.epoch, extract(epoch FROM b.at)::float8 AS unix_s, l.address, l.earned_micro, l.added_micro,
    extract(epoch FROM b.posted_at)::float8 AS posted_unix_s, coalesce(c.claimed_micro, 0) >= l.earned_micro AS claimed
FROM payout_leaves l JOIN payout_batches b USING (pool, epoch) LEFT JOIN payout_claims c USING (pool, address)
WHERE l.pool = $4 AND l.account_id = $1 AND l.added_micro > 0 AND ($2::bigint IS NULL OR l.epoch < $2)
ORDER BY l.epoch DESC LIMIT $3

-- name: settled
-- The sums of an account's batches: not posted, posted, claimed.
SELECT coalesce(sum(l.added_micro) FILTER (WHERE b.posted_at IS NULL), 0)::bigint AS waiting,
    coalesce(sum(l.added_micro) FILTER (WHERE b.posted_at IS NOT NULL), 0)::bigint AS posted,
    (SELECT coalesce(sum(c.claimed_micro), 0) FROM payout_claims c WHERE c.pool = $2 AND c.address IN (
        SELECT address FROM payout_leaves WHERE pool = $2 AND account_id = $1))::bigint AS claimed
FROM payout_leaves l JOIN payout_batches b USING (pool, epoch) WHERE l.pool = $2 AND l.account_id = $1

-- name: first_unposted_batch
SELECT epoch, extract(epoch FROM at)::float8 AS unix_s, root, leaves, promised_micro, added_micro,
    extract(epoch FROM posted_at)::float8 AS posted_unix_s, posted_tx, is_ripe, struck_at IS NOT NULL AS is_struck, strikes
FROM payout_batches WHERE pool = $1 AND posted_at IS NULL ORDER BY epoch LIMIT 1

-- name: claimable
-- From the newest ripe batch, whose tree holds the last leaf of every address.
SELECT l.address, p.epoch, l.earned_micro, coalesce(c.claimed_micro, 0) AS claimed_micro
FROM (SELECT max(epoch) AS epoch FROM payout_batches WHERE pool = $3 AND is_ripe) AS p
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (address) address, account_id, earned_micro FROM payout_leaves
    WHERE pool = $3 AND epoch <= p.epoch
        AND address IN (SELECT address FROM payout_leaves WHERE pool = $3 AND account_id = $1)
    ORDER BY address, epoch DESC) AS l
LEFT JOIN payout_claims c ON c.pool = $3 AND c.address = l.address
WHERE l.account_id = $1 AND l.earned_micro > coalesce(c.claimed_micro, 0) ORDER BY l.address LIMIT $2

-- name: forget_posted_batches
UPDATE payout_batches SET posted_at = NULL, posted_tx = NULL, ripe_at = NULL, is_ripe = false, struck_at = NULL

-- name: forget_payout_claims
DELETE FROM payout_claims

-- name: mark_posted
UPDATE payout_batches SET posted_tx = $2, posted_at = to_timestamp($3::float8), ripe_at = to_timestamp($4::float8)
WHERE pool = $5 AND epoch = $1 AND posted_at IS NULL RETURNING epoch

-- name: mark_ripe
UPDATE payout_batches SET is_ripe = true
WHERE pool = $2 AND posted_at IS NOT NULL AND NOT is_ripe AND ripe_at <= to_timestamp($1::float8)

-- name: mark_struck
UPDATE payout_batches SET struck_at = now(), strikes = strikes + 1, posted_at = NULL, posted_tx = NULL, ripe_at = NULL
WHERE pool = $2 AND epoch = $1 AND posted_at IS NOT NULL AND NOT is_ripe RETURNING epoch

-- name: post_struck_again
UPDATE payout_batches SET struck_at = NULL
WHERE pool = $2 AND epoch = $1 AND struck_at IS NOT NULL RETURNING epoch

-- name: last_ripe_epoch
SELECT max(epoch) FROM payout_batches WHERE pool = $1 AND is_ripe

-- name: has_open_batch
SELECT EXISTS (SELECT FROM payout_batches WHERE pool = $1 AND NOT is_ripe)

-- name: has_batch_under_delay
SELECT EXISTS (SELECT FROM payout_batches WHERE pool = $1 AND posted_at IS NOT NULL AND NOT is_ripe)

-- name: unshown_spending
-- What an account has spent beyond what is in its leaves, in micro-USD; reckoned as `standings` does it.
SELECT (coalesce((SELECT sum(CASE kind WHEN 'deposit' THEN nano ELSE -nano END) FROM transfers
        WHERE account_id = $1 AND kind IN ('deposit', 'exit')), 0)
    - coalesce((SELECT nano FROM balances WHERE account = 'credits:' || $1), 0)
    + least((SELECT coalesce(sum(lacking_nano), 0) FROM credit_holds
            WHERE account_id = $1 AND lacking_nano > 0 AND at < now() - make_interval(secs => $2)),
        (SELECT coalesce(sum(s.nano), 0) FROM slices s WHERE s.account = 'credits:' || $1
            AND s.instance NOT IN (SELECT 'hold:' || id FROM credit_holds WHERE purpose = 'exit'))))::bigint / 1000
    - (SELECT coalesce(sum(spent_micro), 0) FROM (
        SELECT DISTINCT ON (address) account_id, spent_micro FROM payout_leaves
        WHERE pool = 0 AND address IN (SELECT address FROM payout_leaves WHERE pool = 0 AND account_id = $1)
        ORDER BY address, epoch DESC) AS last WHERE account_id = $1)::bigint

-- name: mark_claimed
INSERT INTO payout_claims AS c (address, claimed_micro, pool) VALUES ($1, $2, $3)
ON CONFLICT (pool, address) DO UPDATE SET claimed_micro = greatest(c.claimed_micro, excluded.claimed_micro)

-- name: root_status
SELECT (SELECT min(epoch) FROM payout_batches WHERE pool = $1 AND struck_at IS NOT NULL) AS struck,
    (SELECT max(epoch) FROM payout_batches WHERE pool = $1 AND posted_at IS NOT NULL AND NOT is_ripe) AS delayed,
    (SELECT extract(epoch FROM max(ripe_at))::float8 FROM payout_batches
        WHERE pool = $1 AND posted_at IS NOT NULL AND NOT is_ripe) AS ripe_unix_s,
    coalesce((SELECT event = 'PoolStopped' FROM chain_events
        WHERE contract = 'settlement' AND event IN ('PoolStopped', 'PoolLifted') AND args ->> 'pool' = $1::smallint::text
        ORDER BY block_number DESC, log_index DESC LIMIT 1), false) AS is_stopped

-- name: find_struck
SELECT epoch FROM payout_batches WHERE pool = $2 AND epoch = $1 AND struck_at IS NOT NULL

-- name: payouts_to_undo
-- Of each account what batches from this one on have added, by earnings and by credits that were to become tokens.
SELECT l.account_id, (sum(l.added_micro) * 1000 - coalesce(max(h.nano), 0))::bigint AS earned_nano,
    coalesce(max(h.nano), 0)::bigint AS converted_nano
FROM payout_leaves l
LEFT JOIN (SELECT account_id, sum(paid_nano) AS nano FROM credit_holds WHERE by_root AND epoch >= $1 GROUP BY account_id)
    AS h ON h.account_id = l.account_id
WHERE l.pool = 0 AND l.epoch >= $1 GROUP BY l.account_id HAVING sum(l.added_micro) > 0

-- name: forget_conversions_from
DELETE FROM credit_holds WHERE by_root AND epoch >= $1

-- name: forget_leaves_from
DELETE FROM payout_leaves WHERE pool = $2 AND epoch >= $1

-- name: forget_batches_from
DELETE FROM payout_batches WHERE pool = $2 AND epoch >= $1 RETURNING epoch
