-- name: book_event
INSERT INTO booked_events (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING id

-- name: pockets_of
-- Locked: another process that posts events waits.
SELECT p.pocket, p.id, p.address, p.micro FROM chain_pockets p
JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS wanted (pocket, id)
    ON p.pocket = wanted.pocket AND p.id = wanted.id
ORDER BY p.pocket, p.id FOR UPDATE OF p

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
    (coalesce((SELECT nano FROM locked WHERE account = 'credits:' || a.id), 0)
        - (SELECT coalesce(sum(s.nano), 0) FROM slices s WHERE s.account = 'credits:' || a.id
            AND s.instance NOT IN (SELECT 'hold:' || h.id FROM credit_holds h WHERE h.purpose = 'exit')))::bigint AS free
FROM unnest($1::text[]) AS a (id)

-- name: hold_of_transaction
-- Of the request whose faucet call this transaction was.
SELECT h.id, h.purpose, h.account_id, h.address, h.promo_nano, h.paid_nano, h.epoch
FROM chain_signed s JOIN chain_outbox o ON o.id = s.outbox_id
JOIN credit_holds h ON o.business_id = h.id || ':faucet' AND h.purpose = 'request' AND h.epoch IS NULL
WHERE s.tx_hash = $1

-- name: find_hold
SELECT id, purpose, account_id, address, promo_nano, paid_nano, epoch FROM credit_holds WHERE id = $1

-- name: holds_for
SELECT id, purpose, account_id, address, promo_nano, paid_nano, epoch FROM credit_holds
WHERE purpose = $1 ORDER BY at, id LIMIT $2

-- name: held_by
SELECT purpose, sum(promo_nano + paid_nano)::bigint AS nano FROM credit_holds
WHERE account_id = $1 AND epoch IS NULL GROUP BY purpose

-- name: lock_free_credits
-- What of an account's credits nobody has reserved; $2 is the instance that asks.
WITH locked AS (
    SELECT account, nano FROM balances WHERE account IN ('credits:' || $1, 'promo:' || $1) ORDER BY account FOR UPDATE)
SELECT split_part(l.account, ':', 1) AS name,
    (l.nano - (SELECT coalesce(sum(s.nano), 0) FROM slices s
        WHERE s.account = l.account AND s.instance <> $2))::bigint AS free
FROM locked l

-- name: insert_hold
INSERT INTO credit_holds (id, purpose, account_id, address, promo_nano, paid_nano) VALUES ($1, $2, $3, $4, $5, $6)

-- name: delete_hold
DELETE FROM credit_holds WHERE id = $1 RETURNING id
