-- The chain as this database knows it. `chain_events` and `chain_blocks` are an index: they can be dropped and read anew
-- from the chain. The outbox cannot: it is where a decision becomes one transaction, exactly once.

-- One row: which chain is followed, which contracts, and how far. `version` grows with every change, so that of two
-- followers only one can move it.
CREATE TABLE chain_index (
    id           int PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    chain_id     bigint NOT NULL,
    genesis_hash bytea NOT NULL CHECK (length(genesis_hash) = 32),
    contracts    jsonb NOT NULL,
    start_block  bigint NOT NULL,
    block_number bigint NOT NULL,
    block_hash   bytea NOT NULL CHECK (length(block_hash) = 32),
    head_number  bigint NOT NULL,
    version      bigint NOT NULL DEFAULT 1,
    updated_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE chain_blocks (
    number bigint PRIMARY KEY,
    hash   bytea NOT NULL CHECK (length(hash) = 32)
);

CREATE TABLE chain_events (
    block_number bigint NOT NULL,
    log_index    int NOT NULL,
    block_hash   bytea NOT NULL,
    tx_hash      bytea NOT NULL,
    ordinal      int NOT NULL,
    contract     text NOT NULL,
    event        text NOT NULL,
    args         jsonb NOT NULL,
    PRIMARY KEY (block_number, log_index)
);
CREATE INDEX chain_events_by_name ON chain_events (contract, event, block_number, log_index);

-- How far each reader of final events has come.
CREATE TABLE chain_readers (
    name         text PRIMARY KEY,
    block_number bigint NOT NULL,
    log_index    int NOT NULL
);

-- The next nonce of each key that sends.
CREATE TABLE chain_senders (
    address    text PRIMARY KEY CHECK (address ~ '^0x[0-9a-f]{40}$'),
    next_nonce bigint NOT NULL
);

CREATE TABLE chain_outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    business_id  text NOT NULL UNIQUE CHECK (length(business_id) BETWEEN 1 AND 200),
    sender       text NOT NULL,
    recipient    text NOT NULL CHECK (recipient ~ '^0x[0-9a-f]{40}$'),
    data         bytea NOT NULL,
    gas_limit    bigint,
    state        text NOT NULL DEFAULT 'decided'
                 CHECK (state IN ('decided', 'signed', 'sent', 'mined', 'final', 'reverted', 'refused')),
    nonce        bigint,
    tries        int NOT NULL DEFAULT 0,
    reason       text,
    block_number bigint,
    block_hash   bytea,
    tx_hash      bytea,
    succeeded    boolean,
    lost_block   bigint,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    changed_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sender, nonce),
    CHECK ((nonce IS NULL) = (state IN ('decided', 'refused')))
);
CREATE INDEX chain_outbox_open ON chain_outbox (sender, id) WHERE state IN ('decided', 'signed', 'sent', 'mined');
CREATE INDEX chain_outbox_by_block ON chain_outbox (block_number) WHERE block_number IS NOT NULL;

-- Every signed form of a transaction: the first, and those with a higher fee. All have the same nonce, so one at most
-- is ever mined. Each is stored before it is sent.
CREATE TABLE chain_signed (
    outbox_id   bigint NOT NULL REFERENCES chain_outbox (id),
    number      int NOT NULL,
    tx_hash     bytea NOT NULL UNIQUE CHECK (length(tx_hash) = 32),
    raw         bytea NOT NULL,
    fee_wei     numeric(78) NOT NULL,
    tip_wei     numeric(78) NOT NULL,
    signed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (outbox_id, number)
);
