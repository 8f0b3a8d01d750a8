-- name: insert_provider
-- A node has one provider for ever: the first stays.
INSERT INTO providers (address, node_id, account_id, sealed_key) VALUES ($1, $2, $3, $4)
ON CONFLICT (node_id) DO NOTHING

-- name: find_provider_key
SELECT account_id, node_id, sealed_key AS sealed FROM providers WHERE address = $1

-- name: find_node_of_provider
-- By its row; else, for one that a wallet registered, by the node key that it registered last.
SELECT coalesce(
    (SELECT node_id FROM providers WHERE address = $1),
    (SELECT args ->> 'node_key' FROM chain_events
     WHERE args ? 'provider' AND args ->> 'provider' = $1
         AND event = 'NodeKeyChanged' AND contract = 'provider_registry'
     ORDER BY block_number DESC, log_index DESC LIMIT 1))

-- name: find_providers
-- Of an account, or of one node. What a wallet registered with the node's key comes before a held key that was never
-- registered; a key serves one provider only, so there are not two of them registered.
SELECT DISTINCT ON (node_id) address, node_id, account_id, is_held FROM (
    SELECT p.address, p.node_id, p.account_id, TRUE AS is_held FROM providers p
    WHERE ($1::text IS NULL OR p.account_id = $1) AND ($2::text IS NULL OR p.node_id = $2)
    UNION ALL
    SELECT e.args ->> 'provider', n.id, n.account_id, FALSE
    FROM nodes n JOIN chain_events e ON e.args ->> 'node_key' = n.id
    WHERE ($1::text IS NULL OR n.account_id = $1) AND ($2::text IS NULL OR n.id = $2)
        AND e.event = 'NodeKeyChanged' AND e.contract = 'provider_registry'
        AND NOT EXISTS (SELECT FROM providers WHERE address = e.args ->> 'provider')
        AND NOT EXISTS (
            SELECT FROM chain_events later
            WHERE later.args ? 'provider' AND later.args ->> 'provider' = e.args ->> 'provider'
                AND later.event = 'NodeKeyChanged' AND later.contract = 'provider_registry'
                AND (later.block_number, later.log_index) > (e.block_number, e.log_index))
) AS found ORDER BY node_id, is_held LIMIT $3

-- name: provider_states
SELECT wanted.address,
    (SELECT (args ->> 'status')::int FROM chain_events
     WHERE args ? 'provider' AND args ->> 'provider' = wanted.address
         AND event = 'StatusChanged' AND contract = 'provider_registry'
     ORDER BY block_number DESC, log_index DESC LIMIT 1) AS status,
    (SELECT args FROM chain_events
     WHERE args ? 'provider' AND args ->> 'provider' = wanted.address
         AND event = 'BondChanged' AND contract = 'stake_registry'
     ORDER BY block_number DESC, log_index DESC LIMIT 1) AS bond,
    (SELECT max((result ->> 'ready_at')::bigint) FROM chain_requests
     WHERE address = wanted.address AND kind = 'unbond' AND state = 'asked') AS unbonded_unix_s
FROM unnest($1::text[]) AS wanted (address)

