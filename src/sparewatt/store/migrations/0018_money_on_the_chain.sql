-- Money on the chain, as the books know it by final events: what stands in each pocket, of anyone. The ledger has the
-- sums of those pockets whose keys the network holds.
CREATE TABLE chain_pockets (
    pocket  text NOT NULL CHECK (pocket IN ('wallet', 'escrow', 'bond', 'owed')),
    id      text NOT NULL,
    address text NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
    micro   numeric(78) NOT NULL,
    PRIMARY KEY (pocket, id)
);
CREATE INDEX chain_pockets_by_address ON chain_pockets (address);

-- Events that are in the pockets and the ledger. An event that is read again changes nothing.
CREATE TABLE booked_events (id text PRIMARY KEY);

-- Credits that wait for the chain: asked for a lease or a bond, or for an exit. What is held is a slice of the balance
-- under the instance `hold:` and the id. `by_root`: a payout batch makes tokens of it, that of `epoch`; else the faucet.
CREATE TABLE credit_holds (
    id         text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 180),
    purpose    text NOT NULL CHECK (purpose IN ('request', 'exit')),
    account_id text NOT NULL REFERENCES accounts (id),
    address    text NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
    promo_nano bigint NOT NULL CHECK (promo_nano >= 0),
    paid_nano  bigint NOT NULL CHECK (paid_nano >= 0),
    by_root    boolean NOT NULL DEFAULT false,
    epoch      bigint REFERENCES payout_batches (epoch),
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX credit_holds_by_account ON credit_holds (account_id);

-- An account may have an address of its own. The keys of addresses that it had before stay: money may come back there.
ALTER TABLE accounts DROP CONSTRAINT accounts_check;
ALTER TABLE accounts ADD CHECK (chain_key IS NULL OR chain_address IS NOT NULL);
DROP INDEX accounts_without_chain_key;
CREATE INDEX accounts_without_chain_address ON accounts (id) WHERE chain_address IS NULL;
CREATE TABLE former_chain_keys (
    address     text PRIMARY KEY CHECK (address ~ '^0x[0-9a-f]{40}$'),
    account_id  text NOT NULL REFERENCES accounts (id),
    chain_key   bytea NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX former_chain_keys_by_account ON former_chain_keys (account_id);

-- A root waits before it can be claimed, by the chain's time, and a guardian may strike it meanwhile.
ALTER TABLE payout_batches
    ADD COLUMN ripe_at timestamptz, ADD COLUMN is_ripe boolean NOT NULL DEFAULT false,
    ADD COLUMN struck_at timestamptz, ADD COLUMN strikes int NOT NULL DEFAULT 0;
UPDATE payout_batches SET is_ripe = posted_at IS NOT NULL;

-- The comparison of the books with the chain: asked for by gateways, done by the chain's process, which alone reads the
-- contracts. One row; `asked` and `answered` count.
CREATE TABLE chain_audit (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    asked    bigint NOT NULL DEFAULT 0,
    answered bigint NOT NULL DEFAULT 0,
    report   jsonb
);
INSERT INTO chain_audit DEFAULT VALUES;
