-- Providers of leases: one node each, with an address of its own, whose key is kept here, sealed, for the owner's
-- account. A provider that its owner's wallet registered has no row: it is found by its node key, in the chain's events.
CREATE TABLE providers (
    address    text PRIMARY KEY CHECK (address ~ '^0x[0-9a-f]{40}$'),
    node_id    text NOT NULL UNIQUE REFERENCES nodes (id),
    account_id text NOT NULL REFERENCES accounts (id),
    sealed_key bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX providers_by_account ON providers (account_id, created_at, address);

-- The last event of each kind about a provider is read whenever its state is shown.
CREATE INDEX chain_events_by_provider ON chain_events ((args ->> 'provider'), event, block_number DESC, log_index DESC)
    WHERE args ? 'provider';
CREATE INDEX chain_events_by_node_key ON chain_events ((args ->> 'node_key'), block_number DESC, log_index DESC)
    WHERE event = 'NodeKeyChanged';
