-- What nodes' keys have signed about their leases, for the chain's process to send; and how deployments stand.
CREATE TABLE lease_acts (
    order_id  text NOT NULL,
    term      bigint NOT NULL,
    kind      text NOT NULL,
    account   text NOT NULL,
    nonce     bigint NOT NULL,
    seq       bigint NOT NULL DEFAULT 0,
    act       text NOT NULL CHECK (octet_length(act) <= 98304),
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, term, kind, account, nonce, seq)
);
CREATE INDEX lease_acts_age ON lease_acts (stored_at);

-- The document of a confirmed start, by its hash on the chain. Its renter reads it.
CREATE TABLE lease_details (
    details_hash text PRIMARY KEY,
    order_id     text NOT NULL,
    document     text NOT NULL CHECK (octet_length(document) <= 65536),
    stored_at    timestamptz NOT NULL DEFAULT now()
);

-- The next number of a node key's meta-transactions at a contract, where the chain's process has found another than 0.
CREATE TABLE lease_key_nonces (
    account  text NOT NULL,
    contract text NOT NULL,
    nonce    bigint NOT NULL,
    PRIMARY KEY (account, contract)
);

-- Secrets, sealed by the renter's client to one candidate's node key each.
CREATE TABLE lease_secrets (
    order_id  text NOT NULL,
    attempt   bigint NOT NULL,
    provider  text NOT NULL,
    name      text NOT NULL,
    sealed    text NOT NULL CHECK (octet_length(sealed) <= 163840),
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, attempt, provider, name)
);
