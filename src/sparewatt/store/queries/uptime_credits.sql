-- name: insert_uptime_credit
-- A lease is ruled on once: the first ruling stays.
INSERT INTO uptime_credits (order_id, lease_id, account_id, ppm, due_nano, reason, ended_at)
VALUES ($1, $2, $3, $4, $5, $6, to_timestamp($7::float8)) ON CONFLICT (order_id) DO NOTHING

-- name: find_uptime_credits
SELECT c.order_id, c.lease_id, c.account_id, c.ppm, c.due_nano, c.reason,
    extract(epoch FROM c.ended_at)::float8 AS ended_unix_s, t.nano AS paid_nano,
    extract(epoch FROM t.at)::float8 AS paid_unix_s
FROM uptime_credits c LEFT JOIN transfers t ON t.cause = 'uptime:' || c.order_id
WHERE c.order_id = ANY ($1::text[])

-- name: recent_uptime_credits
SELECT c.order_id, c.lease_id, c.account_id, c.ppm, c.due_nano, c.reason,
    extract(epoch FROM c.ended_at)::float8 AS ended_unix_s, t.nano AS paid_nano,
    extract(epoch FROM t.at)::float8 AS paid_unix_s
FROM uptime_credits c LEFT JOIN transfers t ON t.cause = 'uptime:' || c.order_id
ORDER BY c.ended_at DESC, c.order_id LIMIT $1

-- name: due_uptime_credits
-- The oldest first.
SELECT c.order_id, c.lease_id, c.account_id, c.ppm, c.due_nano, c.reason,
    extract(epoch FROM c.ended_at)::float8 AS ended_unix_s, NULL::bigint AS paid_nano, NULL::float8 AS paid_unix_s
FROM uptime_credits c WHERE paid_at IS NULL AND due_nano > 0 ORDER BY c.ended_at, c.order_id LIMIT $1

-- name: waiting_uptime_credits
SELECT count(*)::bigint AS leases, coalesce(sum(due_nano), 0)::bigint AS nano FROM uptime_credits
WHERE paid_at IS NULL AND due_nano > 0

-- name: note_uptime_credit_paid
UPDATE uptime_credits SET paid_at = now() WHERE order_id = $1 AND paid_at IS NULL

-- name: uptime_credited_since
SELECT coalesce(sum(nano), 0)::bigint FROM transfers WHERE kind = 'uptime_credit' AND at >= to_timestamp($1::float8)

-- name: renters_of_orders
SELECT r.result ->> 'order_id' AS order_id, o.lease_id, o.account_id
FROM lease_orders o JOIN chain_requests r ON r.id = o.request_id
WHERE r.kind = 'order' AND r.result ->> 'order_id' = ANY ($1::text[])

-- name: accounts_behind
-- Whose addresses or nodes these are, as far as this network knows.
SELECT account_id FROM providers WHERE address = ANY ($1::text[])
UNION SELECT id FROM accounts WHERE chain_address = ANY ($1::text[])
UNION SELECT account_id FROM former_chain_keys WHERE address = ANY ($1::text[])
UNION SELECT account_id FROM nodes WHERE id = ANY ($2::text[])
