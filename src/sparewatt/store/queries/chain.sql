-- name: read_chain_index
SELECT chain_id, genesis_hash, contracts, start_block, block_number, block_hash, head_number, version,
    saved_block FROM chain_index

-- name: begin_chain_index
-- Follow this chain and these contracts from here on.
INSERT INTO chain_index (chain_id, genesis_hash, contracts, start_block, block_number, block_hash, head_number)
VALUES ($1, $2, $3::jsonb, $4, $5, $6, $5)
ON CONFLICT (id) DO UPDATE SET chain_id = $1, genesis_hash = $2, contracts = $3::jsonb, start_block = $4,
    block_number = $5, block_hash = $6, head_number = $5, version = chain_index.version + 1,
    generation = chain_index.generation + 1, common_block = -1, updated_at = now()

-- name: move_chain_index
-- Compare-and-set on the version: of two followers, one moves the index.
UPDATE chain_index SET block_number = $2, block_hash = $3, head_number = $4, version = version + 1, updated_at = now()
WHERE version = $1 RETURNING version

-- name: note_events_removed
UPDATE chain_index SET generation = generation + 1, common_block = $1

-- name: set_chain_depth
UPDATE chain_index SET depth = $1 WHERE depth <> $1

-- name: set_saved_block
UPDATE chain_index SET saved_block = $1 WHERE saved_block IS DISTINCT FROM $1

-- name: set_attempt_time
UPDATE chain_index SET attempt_s = $1 WHERE attempt_s <> $1

-- name: tell_market_changed
-- Wakes whoever folds the events, when the transaction commits.
SELECT pg_notify('market_events', '')

-- name: recent_chain_blocks
SELECT number, hash FROM chain_blocks ORDER BY number DESC LIMIT $1

-- name: insert_chain_blocks
INSERT INTO chain_blocks (number, hash) SELECT new.number, new.hash
FROM unnest($1::bigint[], $2::bytea[]) AS new (number, hash)
ON CONFLICT (number) DO UPDATE SET hash = excluded.hash

-- name: forget_chain_blocks
DELETE FROM chain_blocks WHERE number < $1

-- name: insert_chain_events
-- An event that is stored already is the same one, and stays.
INSERT INTO chain_events (block_number, log_index, block_hash, tx_hash, ordinal, contract, event, unix_s, args)
SELECT new.block_number, new.log_index, new.block_hash, new.tx_hash, new.ordinal, new.contract, new.event, new.unix_s,
    new.args::jsonb
FROM unnest($1::bigint[], $2::int[], $3::bytea[], $4::bytea[], $5::int[], $6::text[], $7::text[], $8::bigint[],
    $9::text[]) AS new (block_number, log_index, block_hash, tx_hash, ordinal, contract, event, unix_s, args)
ON CONFLICT (block_number, log_index) DO NOTHING

-- name: remove_chain_events_above
DELETE FROM chain_events WHERE block_number > $1

-- name: remove_chain_blocks_above
DELETE FROM chain_blocks WHERE number > $1

-- name: reopen_outbox_above
-- What a reorg removed is in flight again, with the same signed bytes.
UPDATE chain_outbox SET state = 'sent', block_number = NULL, block_hash = NULL, tx_hash = NULL, succeeded = NULL,
    reason = NULL, changed_at = now()
WHERE block_number > $1 AND state IN ('mined', 'final', 'reverted')

-- name: reopen_outbox_moved
-- After a batch of blocks: transactions whose block has another hash now, or is beyond the head.
UPDATE chain_outbox SET state = 'sent', block_number = NULL, block_hash = NULL, tx_hash = NULL, succeeded = NULL,
    reason = NULL, changed_at = now()
WHERE state IN ('mined', 'final', 'reverted') AND (block_number > $2 OR block_number >= $1
    AND EXISTS (SELECT FROM chain_blocks WHERE number = chain_outbox.block_number AND hash <> chain_outbox.block_hash))

-- name: forget_signed
DELETE FROM chain_signed

-- name: forget_ended_outbox
DELETE FROM chain_outbox WHERE state IN ('final', 'reverted', 'refused')

-- name: decide_outbox_anew
UPDATE chain_outbox SET state = 'decided', nonce = NULL, tries = 0, reason = NULL, block_number = NULL,
    block_hash = NULL, tx_hash = NULL, succeeded = NULL, lost_block = NULL, changed_at = now()

-- name: forget_senders
DELETE FROM chain_senders

-- name: forget_chain_readers
DELETE FROM chain_readers

-- name: rewind_chain_readers
UPDATE chain_readers SET block_number = $1, log_index = 2147483647 WHERE block_number > $1

-- name: chain_events_after
-- In the chain's order, up to a block.
SELECT block_number, log_index, block_hash, tx_hash, ordinal, contract, event, args, unix_s FROM chain_events
WHERE (block_number, log_index) > ($1, $2) AND block_number <= $3
    AND (contract, event) IN (SELECT * FROM unnest($4::text[], $5::text[]))
ORDER BY block_number, log_index LIMIT $6

-- name: chain_events_of
SELECT block_number, log_index, block_hash, tx_hash, ordinal, contract, event, args FROM chain_events
WHERE tx_hash = ANY ($1::bytea[]) AND (contract, event) IN (SELECT * FROM unnest($2::text[], $3::text[]))
ORDER BY block_number, log_index

-- name: read_chain_reader
SELECT block_number, log_index FROM chain_readers WHERE name = $1

-- name: begin_chain_reader
INSERT INTO chain_readers (name, block_number, log_index) VALUES ($1, $2, 2147483647) ON CONFLICT (name) DO NOTHING

-- name: move_chain_reader
-- Compare-and-set: not if a reorg rewound the reader meanwhile.
UPDATE chain_readers SET block_number = $4, log_index = $5
WHERE name = $1 AND block_number = $2 AND log_index = $3

-- name: decide_outbox
INSERT INTO chain_outbox (business_id, sender, recipient, data, gas_limit) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (business_id) DO NOTHING

-- name: find_outbox
SELECT id, business_id, sender, recipient, data, gas_limit, state, nonce, tries, reason, block_number, block_hash,
    tx_hash, succeeded, lost_block, request_id
FROM chain_outbox WHERE business_id = $1

-- name: outbox_decided
-- By number of tries, so that a call that is refused does not hold up the rest; the calls of a request in their order.
SELECT id, business_id, sender, recipient, data, gas_limit, state, nonce, tries, reason, block_number, block_hash,
    tx_hash, succeeded, lost_block, request_id
FROM chain_outbox o WHERE sender = $1 AND state = 'decided'
ORDER BY coalesce((SELECT max(f.tries) FROM chain_outbox f WHERE f.request_id = o.request_id AND f.state = 'decided'),
    tries), id
LIMIT $2

-- name: outbox_under_way
SELECT id, business_id, sender, recipient, data, gas_limit, state, nonce, tries, reason, block_number, block_hash,
    tx_hash, succeeded, lost_block, request_id
FROM chain_outbox WHERE sender = $1 AND state IN ('signed', 'sent', 'mined') ORDER BY nonce LIMIT $2

-- name: outbox_signed
SELECT outbox_id, number, tx_hash, raw, fee_wei, tip_wei, extract(epoch FROM now() - signed_at)::float8 AS age_s
FROM chain_signed WHERE outbox_id = ANY ($1::bigint[]) ORDER BY outbox_id, number

-- name: take_nonce
-- Locks the row of the sender: the next to sign waits until this nonce is used.
INSERT INTO chain_senders (address, next_nonce) VALUES ($1, $2)
ON CONFLICT (address) DO UPDATE SET next_nonce = greatest(chain_senders.next_nonce, $2) RETURNING next_nonce

-- name: use_nonce
UPDATE chain_senders SET next_nonce = $2 + 1 WHERE address = $1

-- name: outbox_note_signed
-- The gas limit stays from here on: another version of the transaction differs by its fee alone.
UPDATE chain_outbox SET state = 'signed', nonce = $2, gas_limit = $4, lost_block = NULL, reason = NULL, changed_at = now()
WHERE id = $1 AND nonce IS NOT DISTINCT FROM $3 AND sender = $5 AND state IN ('decided', 'signed', 'sent') RETURNING id

-- name: insert_signed
INSERT INTO chain_signed (outbox_id, number, tx_hash, raw, fee_wei, tip_wei)
SELECT $1, coalesce(max(number), 0) + 1, $2, $3, $4, $5 FROM chain_signed WHERE outbox_id = $1

-- name: insert_signed_again
-- Inserts nothing if there are more versions than the caller knows of.
INSERT INTO chain_signed (outbox_id, number, tx_hash, raw, fee_wei, tip_wei)
SELECT $1, $6::int + 1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM chain_signed WHERE outbox_id = $1) = $6
ON CONFLICT DO NOTHING RETURNING outbox_id

-- name: fill_outbox_nonce
INSERT INTO chain_outbox (business_id, sender, recipient, data, gas_limit, state, nonce)
VALUES ($1, $2, $2, '', $3, 'signed', $4)
ON CONFLICT DO NOTHING RETURNING id

-- name: outbox_note_sent
UPDATE chain_outbox SET state = 'sent', lost_block = NULL, block_number = NULL, block_hash = NULL, tx_hash = NULL,
    succeeded = NULL, changed_at = now()
WHERE id = $1 AND state IN ('signed', 'sent', 'mined')

-- name: outbox_note_mined
UPDATE chain_outbox SET state = 'mined', block_number = $2, block_hash = $3, tx_hash = $4, succeeded = $5, reason = $6,
    lost_block = NULL, changed_at = now()
WHERE id = $1 AND state IN ('signed', 'sent', 'mined')

-- name: outbox_note_lost
UPDATE chain_outbox SET lost_block = $2, changed_at = now() WHERE id = $1 AND state IN ('signed', 'sent')

-- name: outbox_note_refused
-- One try more; after the last the row ends as refused, with the later calls of its request.
WITH tried AS (
    UPDATE chain_outbox SET tries = tries + 1, reason = $2, changed_at = now(),
        state = CASE WHEN tries + 1 >= $3 THEN 'refused' ELSE 'decided' END
    WHERE id = $1 AND state = 'decided' RETURNING id, request_id, state)
UPDATE chain_outbox SET state = 'refused', reason = $2, changed_at = now() FROM tried
WHERE tried.state = 'refused' AND chain_outbox.request_id = tried.request_id AND chain_outbox.id > tried.id
    AND chain_outbox.state = 'decided'

-- name: finish_outbox
-- Final if the index is `depth` blocks past it, has the same hash for its block, and the chain has it on disk.
UPDATE chain_outbox SET state = CASE WHEN succeeded THEN 'final' ELSE 'reverted' END, changed_at = now()
FROM chain_index
WHERE state = 'mined' AND chain_outbox.block_number <= LEAST(chain_index.block_number - $1 + 1, saved_block)
    AND NOT EXISTS (SELECT FROM chain_blocks
        WHERE number = chain_outbox.block_number AND hash <> chain_outbox.block_hash)

-- name: outbox_open_senders
SELECT DISTINCT sender FROM chain_outbox
WHERE sender = ANY ($1::text[]) AND state IN ('decided', 'signed', 'sent', 'mined') ORDER BY sender

-- name: outbox_sender_loads
SELECT sender, count(*) AS open_calls, coalesce(max(extract(epoch FROM now() - (SELECT min(signed_at) FROM chain_signed
    WHERE outbox_id = o.id))) FILTER (WHERE state IN ('signed', 'sent')), 0)::float8 AS waiting_s
FROM chain_outbox o WHERE sender = ANY ($1::text[]) AND state IN ('decided', 'signed', 'sent') GROUP BY sender

-- name: outbox_has_waiting_requests
SELECT EXISTS (SELECT FROM chain_outbox WHERE state = 'decided' AND request_id IS NOT NULL)

-- name: outbox_movable_requests
SELECT request_id, count(*) AS calls FROM chain_outbox o
WHERE state = 'decided' AND request_id IS NOT NULL AND NOT sender = ANY ($1::text[])
    AND NOT EXISTS (SELECT FROM chain_outbox f WHERE f.request_id = o.request_id AND f.state IN ('signed', 'sent'))
GROUP BY request_id ORDER BY min(id) LIMIT $2

-- name: lock_outbox_of_request
SELECT state FROM chain_outbox WHERE request_id = $1 ORDER BY id FOR UPDATE

-- name: move_outbox_of_request
UPDATE chain_outbox SET sender = $2, tries = 0, changed_at = now() WHERE request_id = $1 AND state = 'decided'

-- name: outbox_has_open
SELECT EXISTS (SELECT FROM chain_outbox
WHERE starts_with(business_id, $1) AND state IN ('decided', 'signed', 'sent', 'mined'))

-- name: has_fresh_events
SELECT EXISTS (SELECT FROM chain_events e, chain_index i
    WHERE e.block_number > LEAST(i.block_number - $1::int + 1, i.saved_block))

-- name: count_outbox
SELECT state, count(*) AS n FROM chain_outbox GROUP BY state

-- name: count_outbox_by_sender
-- Of every key that has sent: what is not final.
SELECT s.address, count(o.id) AS n FROM chain_senders s
LEFT JOIN chain_outbox o ON o.sender = s.address AND o.state IN ('decided', 'signed', 'sent', 'mined')
GROUP BY s.address ORDER BY s.address

-- name: count_chain_events
SELECT count(*) FROM chain_events

-- name: market_events
-- The index and the next events behind a position, as of one moment: a row without an event if there is none.
SELECT i.generation, i.common_block, i.start_block, i.block_number AS indexed_block, i.depth, i.attempt_s,
    e.block_number, e.log_index, e.block_hash, e.tx_hash, e.ordinal, e.contract, e.event, e.args, e.unix_s
FROM chain_index i LEFT JOIN LATERAL (
    SELECT * FROM chain_events
    WHERE (block_number, log_index) > ($1, $2) AND (contract, event) IN (SELECT * FROM unnest($3::text[], $4::text[]))
    ORDER BY block_number, log_index LIMIT $5) e ON TRUE
ORDER BY e.block_number, e.log_index

-- name: events_of_lease
SELECT block_number, log_index, block_hash, tx_hash, ordinal, contract, event, args, unix_s FROM chain_events
WHERE coalesce(args ->> 'lease_id', args ->> 'order_id') = $1
    AND (contract, event) IN (SELECT * FROM unnest($2::text[], $3::text[]))
ORDER BY block_number, log_index LIMIT $4
