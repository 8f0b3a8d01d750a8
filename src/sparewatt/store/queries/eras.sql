-- name: last_era
SELECT era, extract(epoch FROM since)::bigint AS since, extract(epoch FROM until)::bigint AS until, inputs, inputs_hash,
    pool_micro, given_micro, carried_nano, epoch, fees_left_nano, lease_fees_micro::bigint AS lease_fees_micro
FROM reward_eras ORDER BY era DESC LIMIT 1

-- name: find_era
SELECT era, extract(epoch FROM since)::bigint AS since, extract(epoch FROM until)::bigint AS until, inputs, inputs_hash,
    pool_micro, given_micro, carried_nano, epoch, fees_left_nano, lease_fees_micro::bigint AS lease_fees_micro
FROM reward_eras WHERE era = $1

-- name: eras
SELECT era, extract(epoch FROM since)::bigint AS since, extract(epoch FROM until)::bigint AS until, '' AS inputs,
    inputs_hash, pool_micro, given_micro, carried_nano, epoch, fees_left_nano,
    lease_fees_micro::bigint AS lease_fees_micro
FROM reward_eras WHERE $1::bigint IS NULL OR era < $1 ORDER BY era DESC LIMIT $2

-- name: insert_era
INSERT INTO reward_eras (era, since, until, inputs, inputs_hash, pool_micro, given_micro, carried_nano, epoch,
    fees_left_nano, lease_fees_micro)
VALUES ($1, to_timestamp($2::float8), to_timestamp($3::float8), $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT DO NOTHING RETURNING era

-- name: insert_era_nodes
INSERT INTO era_nodes (era, until, node_id, account_id, up_s, known_s, done, failed, checks_passed, checks_failed,
    good_units, bad_units, availability_micro, uptime_micro, quality_micro)
SELECT $1, to_timestamp($2::float8), new.* FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::bigint[]) AS new

-- name: era_work
-- What other accounts had done by each node, by payer. A failed attempt is in the books only if something was delivered,
-- so failures are counted elsewhere. The fee of an attempt is of both kinds of credits; the paid part of it is reckoned.
SELECT a.node_id, a.owner_id, j.account_id AS payer, count(*) FILTER (WHERE a.outcome = 'done') AS done,
    sum(a.net_nano + a.fee_nano * a.net_nano / greatest(1, a.net_nano + a.net_promo_nano))::bigint AS paid_nano,
    sum(a.fee_nano * a.net_nano / greatest(1, a.net_nano + a.net_promo_nano))::bigint AS fee_nano
FROM attempts a JOIN jobs j ON j.id = a.job_id AND j.opened_at = a.opened_at
WHERE a.opened_at >= to_timestamp($1::float8) AND a.opened_at < to_timestamp($2::float8)
    AND j.opened_at >= to_timestamp($1::float8) AND j.opened_at < to_timestamp($2::float8)
    AND j.account_id <> a.owner_id
GROUP BY a.node_id, a.owner_id, j.account_id ORDER BY a.node_id, payer LIMIT $3

-- name: era_counts
-- Of each node and day of an era, what was counted beyond what earlier eras of the same day had.
SELECT node_id, day, sum(up_s)::float8 AS up_s, sum(known_s)::float8 AS known_s, sum(failed)::bigint AS failed,
    sum(checks_passed)::bigint AS checks_passed, sum(checks_failed)::bigint AS checks_failed
FROM (
    SELECT name AS node_id, (at AT TIME ZONE 'UTC')::date AS day, up_s, known_s, 0::bigint AS failed,
        0::bigint AS checks_passed, 0::bigint AS checks_failed
    FROM history WHERE step_s = 86400 AND kind = 'node' AND (at AT TIME ZONE 'UTC')::date BETWEEN $1 AND $2
    UNION ALL SELECT node_id, day, 0, 0, count, 0, 0 FROM node_record WHERE result <> 'done' AND day BETWEEN $1 AND $2
    UNION ALL SELECT node_id, day, 0, 0, 0, passed, failed FROM check_counts WHERE day BETWEEN $1 AND $2
    UNION ALL SELECT node_id, day, -up_s, -known_s, -failed, -checks_passed, -checks_failed
    FROM era_marks WHERE day BETWEEN $1 AND $2
) AS counted GROUP BY node_id, day ORDER BY node_id, day LIMIT $3

-- name: forget_era_marks
DELETE FROM era_marks WHERE day < $1

-- name: put_era_marks
-- What an era has taken of the day that it ended in.
INSERT INTO era_marks AS known (node_id, day, up_s, known_s, failed, checks_passed, checks_failed)
SELECT new.node_id, $1, new.up_s, new.known_s, new.failed, new.passed, new.checks_failed
FROM unnest($2::text[], $3::float8[], $4::float8[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS new (node_id, up_s, known_s, failed, passed, checks_failed)
ON CONFLICT (node_id, day) DO UPDATE SET up_s = known.up_s + excluded.up_s, known_s = known.known_s + excluded.known_s,
    failed = known.failed + excluded.failed, checks_passed = known.checks_passed + excluded.checks_passed,
    checks_failed = known.checks_failed + excluded.checks_failed

-- name: node_histories
-- Of the eras that ended in the last days: what tiers are decided by. `good_days` are those since the last failed check.
SELECT e.node_id, count(DISTINCT ((e.until - interval '1 second') AT TIME ZONE 'UTC')::date) FILTER (WHERE e.up_s > 0) AS days,
    count(DISTINCT ((e.until - interval '1 second') AT TIME ZONE 'UTC')::date) FILTER (WHERE e.up_s > 0 AND e.until > coalesce(
        (SELECT max(f.until) FROM era_nodes f WHERE f.node_id = e.node_id AND f.checks_failed > 0), '-infinity'))
        AS good_days,
    max(((e.until - interval '1 second') AT TIME ZONE 'UTC')::date) FILTER (WHERE e.up_s > 0) AS last_day,
    sum(e.up_s)::bigint AS up_s, sum(e.known_s)::bigint AS known_s, sum(e.done)::bigint AS done,
    sum(e.failed)::bigint AS failed, sum(e.checks_passed)::bigint AS checks_passed,
    sum(e.checks_failed)::bigint AS checks_failed
FROM era_nodes e WHERE e.until > to_timestamp($1::float8) GROUP BY e.node_id ORDER BY e.node_id LIMIT $2

-- name: record_days
-- What a node's record follows from, by the day in which an era ended.
SELECT (extract(epoch FROM e.until)::bigint - 1) / 86400 AS day, sum(e.up_s)::bigint AS up_s,
    sum(e.known_s)::bigint AS known_s, sum(e.good_units)::bigint AS good_units, sum(e.bad_units)::bigint AS bad_units,
    sum(e.checks_passed)::bigint AS checks_passed, sum(e.checks_failed)::bigint AS checks_failed
FROM era_nodes e WHERE e.node_id = $1 AND e.until > to_timestamp($2::float8) GROUP BY day ORDER BY day LIMIT $3

-- name: completion_sums
-- Of all nodes, in jobs, each era's forgotten by half in $2 days.
SELECT node_id, sum(good_units * power(0.5, age)) / 1e6 AS done, sum(bad_units * power(0.5, age)) / 1e6 AS failed
FROM (SELECT node_id, good_units::float8 AS good_units, bad_units::float8 AS bad_units,
        greatest(0, extract(epoch FROM to_timestamp($1::float8) - until)::float8) / 86400 / $2::float8 AS age
    FROM era_nodes WHERE until > to_timestamp($1::float8) - make_interval(days => $3)) AS aged
GROUP BY node_id ORDER BY node_id LIMIT $4

-- name: last_reward_of
SELECT max(era) FROM era_nodes WHERE node_id = $1

-- name: node_payees
-- Where a node's rewards go: its owner's address; or, if the owner wants a bond of it, that of its provider.
SELECT n.id AS node_id, n.account_id, coalesce(CASE WHEN b.node_id IS NOT NULL THEN p.address END, a.chain_address) AS payee
FROM nodes n JOIN accounts a ON a.id = n.account_id
LEFT JOIN providers p ON p.node_id = n.id LEFT JOIN rewards_to_bond b ON b.node_id = n.id
WHERE n.id = ANY ($1::text[])

-- name: lease_fees
-- By final events, in micro-USD.
SELECT coalesce(sum((e.args ->> 'fee')::numeric), 0)::bigint FROM chain_events e, chain_index i
WHERE e.contract = 'escrow' AND e.event = 'Settled' AND e.block_number <= i.block_number - i.depth + 1

-- name: rewards_of
-- One line per era and node of an account.
SELECT n.era, extract(epoch FROM n.until)::bigint AS until, n.node_id, n.availability_micro, n.uptime_micro,
    n.quality_micro
FROM era_nodes n WHERE n.account_id = $1 AND ($2::bigint IS NULL OR n.era < $2)
ORDER BY n.era DESC, n.node_id LIMIT $3

-- name: put_reward_to_bond
INSERT INTO rewards_to_bond (node_id) VALUES ($1) ON CONFLICT DO NOTHING

-- name: drop_reward_to_bond
DELETE FROM rewards_to_bond WHERE node_id = $1

-- name: accounts_at
SELECT address, account_id FROM (
    SELECT chain_address AS address, id AS account_id FROM accounts
    UNION ALL SELECT address, account_id FROM providers) AS known
WHERE address = ANY ($1::text[])

-- name: forget_old_eras
DELETE FROM era_nodes WHERE until < now() - make_interval(days => $1)
