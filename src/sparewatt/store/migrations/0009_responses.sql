-- Responses that clients asked to be stored, for a day. Input and output are sealed under a key that is derived from
-- the API key itself, of which this database has only a hash: who holds the database cannot read them.
-- `tended_at` tells an answer that is being written from one whose gateway died.
CREATE TABLE responses (
    id           text PRIMARY KEY CHECK (id ~ '^resp_[0-9a-z]{1,60}$'),
    key_id       text NOT NULL REFERENCES api_keys (id),
    previous_id  text,
    status       text NOT NULL DEFAULT 'in_progress'
                 CHECK (status IN ('in_progress', 'completed', 'incomplete', 'failed', 'cancelled')),
    input        bytea NOT NULL,
    output       bytea,
    bytes        bigint NOT NULL GENERATED ALWAYS AS (length(input) + coalesce(length(output), 0)) STORED,
    cancel_asked boolean NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL DEFAULT now(),
    tended_at    timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    CHECK ((status = 'in_progress') = (output IS NULL))
);
CREATE INDEX responses_by_key ON responses (key_id) INCLUDE (bytes, expires_at);
CREATE INDEX responses_by_expiry ON responses (expires_at);
