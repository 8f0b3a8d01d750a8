-- name: insert_restart
INSERT INTO chain_restarts (abandoned) VALUES ($1) ON CONFLICT (abandoned) DO NOTHING
RETURNING number, extract(epoch FROM at)::float8 AS unix_s, at::date AS day

-- name: money_on_chain
-- Locked in the order of names, as all that posts does.
SELECT account, nano FROM balances
WHERE (account ~ '^(wallet|escrow|bond|owed|given):' OR account IN ('network:payouts', 'network:reward_payouts')) AND nano <> 0
ORDER BY account FOR UPDATE

-- name: unclaimed_payouts
SELECT l.account_id, sum(greatest(0, l.earned_micro - coalesce(c.claimed_micro, 0)))::bigint AS micro
FROM (SELECT DISTINCT ON (address) address, account_id, earned_micro FROM payout_leaves
    WHERE pool = $1 ORDER BY address, epoch DESC) AS l
LEFT JOIN payout_claims c ON c.pool = $1 AND c.address = l.address
WHERE l.account_id <> '' GROUP BY l.account_id ORDER BY l.account_id

-- name: unbooked_wallets
-- Tokens at held addresses, of a release whose books did not know them: then nobody has read their transfers.
SELECT h.account_id, sum(CASE e.args ->> 'receiver' WHEN h.address THEN (e.args ->> 'amount')::numeric ELSE 0 END
    - CASE e.args ->> 'sender' WHEN h.address THEN (e.args ->> 'amount')::numeric ELSE 0 END)::bigint AS micro
FROM chain_events e JOIN (
    SELECT chain_address AS address, id AS account_id FROM accounts WHERE chain_key IS NOT NULL
    UNION ALL SELECT address, account_id FROM former_chain_keys
    UNION ALL SELECT address, account_id FROM providers) AS h
    ON h.address IN (e.args ->> 'receiver', e.args ->> 'sender')
WHERE e.contract = 'token' AND e.event = 'Transfer' AND NOT EXISTS (SELECT FROM chain_readers WHERE name = 'books')
GROUP BY h.account_id ORDER BY h.account_id

-- name: release_all_holds
DELETE FROM slices WHERE instance LIKE 'hold:%'

-- name: forget_chain
-- Everything that refers to contracts, but the row of the index: it is begun anew for the next ones, and its counters go
-- on. A deposit that was asked for and not begun is made with the new contracts.
WITH _1 AS (DELETE FROM chain_events), _2 AS (DELETE FROM chain_blocks), _3 AS (DELETE FROM chain_readers),
    _4 AS (DELETE FROM chain_senders), _5 AS (DELETE FROM chain_pockets), _6 AS (DELETE FROM booked_events),
    _7 AS (DELETE FROM payout_claims)
DELETE FROM chain_requests WHERE kind <> 'deposit'

-- name: fail_decided_requests
UPDATE chain_requests SET state = 'failed', changed_at = now(),
    reason = 'the network''s chain was started over for a new release.'
WHERE state = 'decided'

-- name: forget_outbox
DELETE FROM chain_outbox

-- name: forget_holds
DELETE FROM credit_holds

-- name: forget_leaves
DELETE FROM payout_leaves

-- name: forget_batches
DELETE FROM payout_batches

-- name: awaits_cover
SELECT EXISTS (SELECT FROM chain_restarts WHERE covered_at IS NULL)

-- name: note_covered
UPDATE chain_restarts SET covered_at = now() WHERE covered_at IS NULL

-- name: chain_problem
SELECT problem FROM chain_problem

-- name: set_chain_problem
INSERT INTO chain_problem (problem) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET problem = excluded.problem

-- name: clear_chain_problem
DELETE FROM chain_problem
