-- What renters have ordered: the chain has hashes only. A content document is readable by every bidder.
CREATE TABLE lease_specs (
    spec_hash     text PRIMARY KEY,
    specification jsonb NOT NULL,
    content       text NOT NULL CHECK (octet_length(content) <= 65536),
    stored_at     timestamptz NOT NULL DEFAULT now()
);

-- One row per order; several of one batch share its name. The order's id is in the result of the chain request.
CREATE TABLE lease_orders (
    request_id text PRIMARY KEY REFERENCES chain_requests (id) ON DELETE CASCADE,
    account_id text NOT NULL,
    lease_id   text NOT NULL,
    batch      text NOT NULL,
    name       text NOT NULL,
    asked_hash text NOT NULL,
    spec_hash  text NOT NULL REFERENCES lease_specs (spec_hash),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (account_id, lease_id)
);
CREATE INDEX lease_orders_newest ON lease_orders (account_id, created_at DESC, lease_id DESC);
CREATE INDEX lease_orders_batch ON lease_orders (account_id, batch);
