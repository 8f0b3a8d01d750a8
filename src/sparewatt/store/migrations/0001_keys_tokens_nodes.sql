-- API keys. The key itself is never stored: `hash` is its SHA-256.
-- `version` grows with every change, so that a gateway can ask for what is new since it last looked.
CREATE SEQUENCE api_key_version;

CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    name       text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    prefix     text NOT NULL,
    scopes     text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    version    bigint NOT NULL DEFAULT nextval('api_key_version')
);
CREATE INDEX api_keys_by_version ON api_keys (version);

-- Nodes that may connect. `specs` is the last report, kept so that a node is known while it is away.
CREATE TABLE nodes (
    id            text PRIMARY KEY CHECK (id ~ '^0x[0-9a-f]{40}$'),
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz,
    specs         jsonb
);

-- Join tokens: single use, expiring, stored hashed.
CREATE TABLE join_tokens (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    created_by text NOT NULL REFERENCES api_keys (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    used_by    text REFERENCES nodes (id)
);
