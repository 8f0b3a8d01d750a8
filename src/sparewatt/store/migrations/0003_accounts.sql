-- Accounts: whose a key, a node or an amount is. `version` counts on with that of the keys, so that a gateway finds
-- what changed in either with one number. The chain key is sealed under the network's secret; null until a gateway,
-- which has that secret, makes one. `policy` is `json`: it is kept as it was written.
CREATE TABLE accounts (
    id            text PRIMARY KEY CHECK (id ~ '^acc_[0-9a-z_]{1,40}$'),
    name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    role          text NOT NULL DEFAULT 'user' CHECK (role IN ('user', 'owner', 'operator')),
    policy        json,
    chain_address text UNIQUE CHECK (chain_address ~ '^0x[0-9a-f]{40}$'),
    chain_key     bytea,
    created_at    timestamptz NOT NULL DEFAULT now(),
    closed_at     timestamptz,
    version       bigint NOT NULL DEFAULT nextval('api_key_version'),
    CHECK ((chain_address IS NULL) = (chain_key IS NULL))
);
CREATE INDEX accounts_by_version ON accounts (version);
CREATE INDEX accounts_by_created_at ON accounts (created_at, id);
CREATE INDEX accounts_without_chain_key ON accounts (id) WHERE chain_key IS NULL;

-- The account of whoever runs the network. It has no login: its keys come from `sparewatt up`.
INSERT INTO accounts (id, name, role) VALUES ('acc_network', 'network operator', 'operator');

-- How a person proves to be an account's owner. Passwords are argon2id hashes.
CREATE TABLE logins (
    email         text PRIMARY KEY CHECK (email = lower(email)),
    account_id    text NOT NULL UNIQUE REFERENCES accounts (id),
    password_hash text NOT NULL,
    changed_at    timestamptz NOT NULL DEFAULT now()
);

-- Browsers that are logged in, and single-use tokens for those who are not. All known by the SHA-256 of the secret.
CREATE TABLE sessions (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    account_id text NOT NULL REFERENCES accounts (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_by_account ON sessions (account_id, created_at);

CREATE TABLE password_resets (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    account_id text NOT NULL REFERENCES accounts (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE TABLE invites (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    created_by text NOT NULL REFERENCES accounts (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_by    text REFERENCES accounts (id)
);

-- Which secret the chain keys are sealed under, by its fingerprint: a gateway that has another one must not start.
CREATE TABLE network_secret (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    fingerprint bytea NOT NULL
);

-- What was there before accounts belongs to the operator.
ALTER TABLE api_keys
    ADD COLUMN account_id       text NOT NULL DEFAULT 'acc_network' REFERENCES accounts (id),
    ADD COLUMN policy           json,
    ADD COLUMN budget_nano      bigint CHECK (budget_nano > 0),
    ADD COLUMN budget_period    text CHECK (budget_period IN ('day', 'week', 'month')),
    ADD COLUMN expires_at       timestamptz,
    ADD COLUMN requests_per_min int CHECK (requests_per_min > 0),
    ADD COLUMN tokens_per_min   int CHECK (tokens_per_min > 0),
    ADD COLUMN last_used_at     timestamptz,
    ADD CHECK ((budget_nano IS NULL) = (budget_period IS NULL));
ALTER TABLE api_keys ALTER COLUMN account_id DROP DEFAULT;
CREATE INDEX api_keys_by_account ON api_keys (account_id);

ALTER TABLE join_tokens ADD COLUMN account_id text NOT NULL DEFAULT 'acc_network' REFERENCES accounts (id);
ALTER TABLE join_tokens ALTER COLUMN account_id DROP DEFAULT;
ALTER TABLE join_tokens ALTER COLUMN created_by DROP NOT NULL; -- one made in a browser has no key behind it

ALTER TABLE nodes ADD COLUMN account_id text NOT NULL DEFAULT 'acc_network' REFERENCES accounts (id);
ALTER TABLE nodes ALTER COLUMN account_id DROP DEFAULT;
CREATE INDEX nodes_by_account ON nodes (account_id);

-- A key with what its account says about it: the row that gateways hold in memory.
CREATE VIEW known_keys AS
SELECT k.id, k.account_id, a.role, k.name, k.hash, k.prefix, k.scopes, k.policy, a.policy AS account_policy,
       k.budget_nano, k.budget_period, k.requests_per_min, k.tokens_per_min,
       k.created_at, k.expires_at, k.last_used_at, k.revoked_at, a.closed_at,
       greatest(k.version, a.version) AS version
FROM api_keys k JOIN accounts a ON a.id = k.account_id;
