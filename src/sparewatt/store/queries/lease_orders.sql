-- name: insert_lease_spec
-- The hash covers all of it, so a second one of the same hash is the same.
INSERT INTO lease_specs (spec_hash, specification, content) VALUES ($1, $2::jsonb, $3)
ON CONFLICT (spec_hash) DO NOTHING

-- name: insert_lease_order
INSERT INTO lease_orders (request_id, account_id, lease_id, batch, name, asked_hash, spec_hash, max_spend_micro)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: set_lease_max_spend
UPDATE lease_orders SET max_spend_micro = $3 WHERE account_id = $1 AND lease_id = $2

-- name: top_ups_under_way
-- Of an order, in µUSD: those that the chain's process has not finished.
SELECT coalesce(sum(micro), 0)::bigint FROM chain_requests
WHERE account_id = $1 AND kind = 'top_up' AND state IN ('asked', 'decided') AND params ->> 'order_id' = $2

-- name: find_lease_spec
-- Of an order, or of an update, of this address only: the hash is public, and anyone may order by another's.
SELECT spec_hash, specification, content FROM lease_specs
WHERE spec_hash = $1 AND (
    EXISTS (SELECT FROM lease_orders o JOIN chain_requests r ON r.id = o.request_id
        WHERE o.spec_hash = $1 AND r.address = $2)
    OR EXISTS (SELECT FROM chain_requests r
        WHERE r.kind = 'update' AND r.address = $2 AND r.params ->> 'spec_hash' = $1))

-- name: list_lease_orders
-- Of an account, the newest first. Filters may be null: a batch, an id or a name, older than a position. Documents are
-- large, so only those that are asked for come whole. Of a request that is under way, the order's id is read from the
-- event of its transaction: an auction is over in a second, and the chain's process notes the id only in its next round.
SELECT o.lease_id, o.account_id, o.batch, o.name, o.asked_hash, o.spec_hash, s.specification,
    CASE WHEN $7 THEN s.content END AS content, s.content::jsonb ->> 'image' AS image,
    ARRAY(SELECT jsonb_array_elements_text(s.content::jsonb -> 'secrets')) AS secrets,
    extract(epoch FROM o.created_at)::float8 AS created_unix_s, r.micro AS deposit_micro, o.max_spend_micro, r.params, r.state, r.reason,
    r.tx, seen.order_id
FROM lease_orders o JOIN chain_requests r ON r.id = o.request_id JOIN lease_specs s ON s.spec_hash = o.spec_hash
CROSS JOIN LATERAL (SELECT coalesce(r.result ->> 'order_id', CASE WHEN r.state = 'decided' THEN (
    SELECT e.args ->> 'order_id' FROM chain_outbox b JOIN chain_signed t ON t.outbox_id = b.id
        JOIN chain_events e ON e.tx_hash = t.tx_hash
    WHERE b.request_id = r.id AND e.contract = 'deployment_order' AND e.event = 'PROVIDER_LOOKUP'
        AND e.args ->> 'renter' = r.address LIMIT 1) END) AS order_id) AS seen
WHERE o.account_id = $1
    AND ($2::text IS NULL OR o.batch = $2)
    AND ($3::text IS NULL OR o.lease_id = $3 OR o.name = $3 OR seen.order_id = $3)
    AND ($4::float8 IS NULL OR (extract(epoch FROM o.created_at)::float8, o.lease_id) < ($4, $5))
ORDER BY o.created_at DESC, o.lease_id DESC LIMIT $6
