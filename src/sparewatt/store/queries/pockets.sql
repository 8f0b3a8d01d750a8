-- name: book_event
INSERT INTO booked_events (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING id

-- name: pockets_of
-- Locked: another process that posts events waits.
SELECT p.pocket, p.id, p.address, p.micro FROM chain_pockets p
JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS wanted (pocket, id)
    ON p.pocket = wanted.pocket AND p.id = wanted.id
ORDER BY p.pocket, p.id FOR UPDATE OF p

-- name: payable_from_pockets
-- What a deposit into the escrow draws on before credits: what the escrow owes the address, and the tokens there, less
-- what requests under way draw on. Nothing while these are on their way into credits.
SELECT greatest(0, coalesce(sum(micro), 0) - (
    SELECT coalesce(sum(greatest(0, r.micro - coalesce(h.promo_nano + h.paid_nano, 0) / 1000)), 0)
    FROM chain_requests r LEFT JOIN credit_holds h ON h.id = r.id
    WHERE r.address = $1 AND r.kind IN ('order', 'top_up', 'bond') AND r.state IN ('asked', 'decided')))
FROM chain_pockets
WHERE (pocket, id) IN (('owed', 'escrow:' || $1::text), ('wallet', $1::text))
    AND NOT EXISTS (SELECT FROM chain_requests WHERE address = $1 AND kind = 'withdraw' AND state IN ('asked', 'decided'))

-- name: refunds_due
-- What the escrow owes to renters whose keys the network holds, where no request of the address is under way or has just
-- ended, and no withdrawal failed lately.
SELECT held.account_id, p.pocket, p.id, p.address, p.micro FROM chain_pockets p
JOIN (SELECT chain_address AS address, id AS account_id FROM accounts WHERE chain_key IS NOT NULL
    UNION ALL SELECT address, account_id FROM former_chain_keys) AS held ON held.address = p.address
WHERE p.pocket = 'owed' AND p.id = 'escrow:' || p.address AND p.micro > 0
    AND NOT EXISTS (SELECT FROM chain_requests r WHERE r.address = p.address AND (r.state IN ('asked', 'decided')
        OR r.changed_at > now() - make_interval(secs => $2)
        OR r.kind = 'withdraw' AND r.state = 'failed' AND r.changed_at > now() - make_interval(secs => $1)))
ORDER BY p.id LIMIT $3

-- name: set_pocket
INSERT INTO chain_pockets (pocket, id, address, micro) VALUES ($1, $2, $3, $4)
ON CONFLICT (pocket, id) DO UPDATE SET micro = excluded.micro

-- name: delete_pocket
DELETE FROM chain_pockets WHERE pocket = $1 AND id = $2

-- name: address_owners
-- Of each address the account, and whether the network has its key.
SELECT address, account_id, is_held FROM (
    SELECT chain_address AS address, id AS account_id, chain_key IS NOT NULL AS is_held FROM accounts
    WHERE chain_address = ANY ($1::text[])
    UNION ALL SELECT address, account_id, TRUE FROM former_chain_keys WHERE address = ANY ($1::text[])
    UNION ALL SELECT address, account_id, TRUE FROM providers WHERE address = ANY ($1::text[])) AS known

-- name: held_addresses
SELECT address, account_id FROM (
    SELECT chain_address AS address, id AS account_id FROM accounts WHERE chain_key IS NOT NULL
    UNION ALL SELECT address, account_id FROM former_chain_keys
    UNION ALL SELECT address, account_id FROM providers) AS held
ORDER BY address LIMIT $1

-- name: owned_pockets
SELECT held.account_id, p.pocket, p.id, p.address, p.micro FROM chain_pockets p
JOIN (SELECT chain_address AS address, id AS account_id FROM accounts WHERE chain_key IS NOT NULL
    UNION ALL SELECT address, account_id FROM former_chain_keys
    UNION ALL SELECT address, account_id FROM providers) AS held ON held.address = p.address
ORDER BY held.account_id, p.pocket, p.id LIMIT $1

-- name: standing_for_event
-- Balances are locked in the order of names, as all that posts does.
WITH locked AS (
    SELECT account, nano FROM balances
    WHERE account IN (SELECT prefix || id FROM unnest($1::text[]) AS a (id)
        CROSS JOIN unnest(ARRAY['credits:', 'given:']) AS p (prefix))
    ORDER BY account FOR UPDATE)
SELECT a.id AS account_id,
    coalesce((SELECT nano FROM locked WHERE account = 'given:' || a.id), 0)::bigint AS given,
    (SELECT coalesce(sum(b.nano), 0) FROM balances b
        WHERE b.account = ANY (ARRAY['wallet:' || a.id, 'escrow:' || a.id, 'bond:' || a.id, 'owed:' || a.id]))::bigint
        AS on_chain,
    (coalesce((SELECT nano FROM locked WHERE account = 'credits:' || a.id), 0)
        - (SELECT coalesce(sum(s.nano), 0) FROM slices s WHERE s.account = 'credits:' || a.id
            AND s.instance NOT IN (SELECT 'hold:' || h.id FROM credit_holds h WHERE h.purpose = 'exit')))::bigint AS free
FROM unnest($1::text[]) AS a (id)

-- name: hold_of_transaction
-- Of the request whose faucet call this transaction was.
SELECT h.id, h.purpose, h.account_id, h.address, h.promo_nano, h.paid_nano, h.lacking_nano, h.by_root, h.epoch
FROM chain_signed s JOIN chain_outbox o ON o.id = s.outbox_id
JOIN credit_holds h ON h.id = o.request_id AND h.purpose = 'request' AND NOT h.by_root
WHERE s.tx_hash = $1 AND o.business_id LIKE '%:faucet'

-- name: find_hold
SELECT id, purpose, account_id, address, promo_nano, paid_nano, lacking_nano, by_root, epoch FROM credit_holds WHERE id = $1

-- name: stale_exit_holds
-- Not those of the last seconds, whose request is about to be inserted.
SELECT id, purpose, account_id, address, promo_nano, paid_nano, lacking_nano, by_root, epoch FROM credit_holds
WHERE purpose = 'exit' AND at < now() - make_interval(secs => $1) AND NOT id = ANY ($2::text[]) LIMIT $3

-- name: held_by
SELECT purpose, sum(promo_nano + paid_nano)::bigint AS nano FROM credit_holds
WHERE account_id = $1 AND epoch IS NULL GROUP BY purpose

-- name: lock_credits
-- A statement of its own: what is read after it sees the slices of whoever had the lock before.
SELECT account FROM balances WHERE account IN ('credits:' || $1, 'promo:' || $1) ORDER BY account FOR UPDATE

-- name: free_credits
-- What of an account's credits nobody has reserved; $2 is the instance that asks, $3 whether for an exit. What an exit
-- still lacks is for no other purpose.
SELECT split_part(b.account, ':', 1) AS name,
    (b.nano - (SELECT coalesce(sum(s.nano), 0) FROM slices s WHERE s.account = b.account AND s.instance <> $2)
        - (SELECT coalesce(sum(h.lacking_nano), 0) FROM credit_holds h
            WHERE h.account_id = $1 AND h.lacking_nano > 0 AND NOT $3 AND b.account = 'credits:' || $1))::bigint AS free
FROM balances b WHERE b.account IN ('credits:' || $1, 'promo:' || $1)

-- name: insert_hold
INSERT INTO credit_holds (id, purpose, account_id, address, promo_nano, paid_nano, lacking_nano, by_root)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: change_exit_hold
-- Its age stays: what is reserved in spite of an exit counts as spent after a while.
UPDATE credit_holds SET paid_nano = $2, lacking_nano = $3 WHERE id = $1

-- name: delete_hold
DELETE FROM credit_holds WHERE id = $1 RETURNING id

-- name: delete_unasked_hold
DELETE FROM credit_holds h WHERE h.id = $1 AND NOT EXISTS (SELECT FROM chain_requests r WHERE r.id = h.id) RETURNING h.id

-- name: release_ended_holds
-- Of requests that ended, once none of their transactions can still use it; and of those that were never asked.
WITH ended AS (
    DELETE FROM credit_holds h
    WHERE h.purpose = 'request'
        AND NOT EXISTS (SELECT FROM chain_requests r WHERE r.id = h.id AND r.state IN ('asked', 'decided'))
        AND NOT EXISTS (SELECT FROM chain_outbox o
            WHERE o.request_id = h.id AND o.state IN ('decided', 'signed', 'sent', 'mined'))
        AND (h.at < now() - interval '1 minute' OR EXISTS (SELECT FROM chain_requests r WHERE r.id = h.id))
    RETURNING h.id)
DELETE FROM slices s USING ended WHERE s.instance = 'hold:' || ended.id

-- name: exits_seen
-- The last event of each address that ever asked for an exit.
SELECT DISTINCT ON (args ->> 'account') args ->> 'account' AS address, event = 'Exited' AS is_paid,
    (args ->> 'amount')::numeric AS micro, (args ->> 'ready_at')::bigint AS ready_at, block_number
FROM chain_events WHERE contract = 'settlement' AND event IN ('ExitRequested', 'Exited')
ORDER BY args ->> 'account', block_number DESC, log_index DESC

-- name: exit_ready_at
-- When the last of an account's exits is ready that its addresses asked for and that is not paid, in chain time.
SELECT max(ready_at) FROM (
    SELECT DISTINCT ON (args ->> 'account') event, (args ->> 'ready_at')::bigint AS ready_at FROM chain_events
    WHERE contract = 'settlement' AND event IN ('ExitRequested', 'Exited') AND args ->> 'account' IN (
        SELECT chain_address FROM accounts WHERE id = $1
        UNION ALL SELECT address FROM former_chain_keys WHERE account_id = $1)
    ORDER BY args ->> 'account', block_number DESC, log_index DESC) AS last
WHERE event = 'ExitRequested'

-- name: deposited_at
-- What was deposited for an address and has not left again, by the contract's events.
SELECT coalesce(sum((args ->> 'amount')::numeric * CASE event WHEN 'Deposited' THEN 1 ELSE -1 END), 0) FROM chain_events
WHERE contract = 'settlement' AND event IN ('Deposited', 'Exited') AND args ->> 'account' = $1

-- name: exit_unpaid_at
-- The most that an exit of an address asks for that was not paid when an event came. The index may be far ahead of the
-- event: an exit that was asked for afterwards counts too.
SELECT max((asked.args ->> 'amount')::numeric) FROM chain_events asked
WHERE asked.contract = 'settlement' AND asked.event = 'ExitRequested' AND asked.args ->> 'account' = $1
    AND NOT EXISTS (SELECT FROM chain_events paid
        WHERE paid.contract = 'settlement' AND paid.event = 'Exited' AND paid.args ->> 'account' = $1
            AND (paid.block_number, paid.log_index) > (asked.block_number, asked.log_index)
            AND (paid.block_number, paid.log_index) < ($2::bigint, $3::int))

-- name: exit_paid_after
-- The first final payment of an exit of an address after an event.
SELECT (e.args ->> 'amount')::numeric AS micro FROM chain_events e
WHERE e.contract = 'settlement' AND e.event = 'Exited' AND e.args ->> 'account' = $1
    AND (e.block_number, e.log_index) > ($2::bigint, $3::int)
    AND e.block_number <= (SELECT LEAST(block_number - depth + 1, saved_block) FROM chain_index)
ORDER BY e.block_number, e.log_index LIMIT 1

-- name: exits_asked
-- Requests for an exit whose event is not seen yet.
SELECT account_id, address, micro FROM chain_requests WHERE kind = 'exit' AND step = 0 AND state IN ('asked', 'decided')

-- name: former_addresses
SELECT address FROM former_chain_keys WHERE account_id = $1 ORDER BY replaced_at DESC

-- name: keep_former_key
INSERT INTO former_chain_keys (address, account_id, chain_key)
SELECT chain_address, id, chain_key FROM accounts WHERE id = $1 AND chain_address = $2 AND chain_key IS NOT NULL
RETURNING address

-- name: set_own_address
UPDATE accounts SET chain_address = $2, chain_key = NULL, version = nextval('api_key_version') WHERE id = $1

-- name: pool_flows
-- Of a pool up to a block, in micro-USD. What is deposited, and what leaves by exits, is of the pool of credits, 0.
SELECT coalesce(sum((args ->> 'amount')::numeric) FILTER (WHERE event = 'Deposited' AND $2::smallint = 0), 0) AS deposited,
    coalesce(sum((args ->> 'amount')::numeric) FILTER (WHERE event = 'PoolFunded'
        AND args ->> 'pool' = $2::smallint::text), 0) AS funded,
    coalesce(sum((args ->> 'amount')::numeric) FILTER (WHERE event = 'Exited' AND $2::smallint = 0), 0) AS exited,
    coalesce(sum((args ->> 'amount')::numeric) FILTER (WHERE event = 'Claimed'
        AND args ->> 'pool' = $2::smallint::text), 0) AS claimed
FROM chain_events WHERE contract = 'settlement' AND event IN ('Deposited', 'PoolFunded', 'Exited', 'Claimed')
    AND block_number <= $1

-- name: books_owe
-- What the books owe that the pool has to cover, what is held for exits, and what came in by no chain, in nano-USD.
SELECT (SELECT coalesce(sum(nano), 0) FROM balances WHERE account LIKE 'credits:%' OR account LIKE 'earned:%'
        OR account IN ('network:payouts', 'network:fees', 'network:treasury', 'network:uptime'))::numeric AS owed,
    (SELECT coalesce(sum(promo_nano + paid_nano), 0) FROM credit_holds WHERE purpose = 'exit')::numeric AS held,
    (SELECT coalesce(sum(nano), 0) FROM transfers
        WHERE kind IN ('treasury', 'uptime_fund') OR kind = 'deposit' AND cause NOT LIKE 'deposit:chain:%')::numeric AS elsewhere

-- name: pocket_balances
SELECT account, nano FROM balances
WHERE account ~ '^(wallet|escrow|bond|owed):' AND nano <> 0 ORDER BY account LIMIT $1

-- name: shortfall
SELECT coalesce((SELECT nano FROM balances WHERE account = 'network:shortfall'), 0)::bigint

-- name: ask_audit
UPDATE chain_audit SET asked = asked + 1 RETURNING asked

-- name: read_audit
SELECT asked, answered, report FROM chain_audit

-- name: answer_audit
UPDATE chain_audit SET answered = $1, report = $2::jsonb

-- name: drop_pockets
DELETE FROM chain_pockets

-- name: balances_on_chain
-- In an order in which what is left of free credits comes last.
SELECT account, nano FROM balances WHERE account ~ '^(wallet|escrow|bond|owed|given):' AND nano <> 0
ORDER BY account LIKE 'given:%', account FOR UPDATE

-- name: database_time
SELECT now()

-- name: claimed_nano
SELECT coalesce(sum(claimed_micro), 0)::bigint * 1000 FROM payout_claims WHERE pool = $1

-- name: holds_to_convert
-- Credits that the next payout root turns into tokens.
SELECT id, account_id, address, paid_nano FROM credit_holds WHERE by_root AND epoch IS NULL ORDER BY at, id LIMIT $1 FOR UPDATE

-- name: note_hold_converted
UPDATE credit_holds SET epoch = $2 WHERE id = $1

-- name: has_holds_to_convert
SELECT EXISTS (SELECT FROM credit_holds WHERE by_root AND epoch IS NULL)

-- name: pockets_of_account
SELECT p.pocket, sum(p.micro) AS micro FROM chain_pockets p
WHERE p.address IN (SELECT chain_address FROM accounts WHERE id = $1 AND chain_key IS NOT NULL
    UNION ALL SELECT address FROM former_chain_keys WHERE account_id = $1
    UNION ALL SELECT address FROM providers WHERE account_id = $1)
GROUP BY p.pocket
