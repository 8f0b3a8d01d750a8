-- Nodes that run in a lease: they belong to their renter's account while the lease goes on, and not after it.
ALTER TABLE join_tokens ADD COLUMN lease_order text CHECK (lease_order ~ '^0x[0-9a-f]{64}$');
ALTER TABLE nodes ADD COLUMN lease_order text CHECK (lease_order ~ '^0x[0-9a-f]{64}$');
CREATE INDEX nodes_of_leases ON nodes (last_seen_at) WHERE lease_order IS NOT NULL;
