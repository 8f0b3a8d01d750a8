-- Links that open the page as an account, once. Known by the SHA-256 of the secret, as sessions are.
CREATE TABLE login_links (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    account_id text NOT NULL REFERENCES accounts (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
