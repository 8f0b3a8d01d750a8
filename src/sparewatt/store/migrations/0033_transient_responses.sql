-- What clients need to go on with a response that they did not ask to store: for an hour, sealed as `responses` are.
-- UNLOGGED: its rows are in no write-ahead log, so in no archive of it and in no physical backup; a crash of Postgres
-- empties it. The snapshot of `store/snapshot.py` leaves such tables out, and so that it can fill `api_keys` again, the
-- key is not a foreign one.
CREATE UNLOGGED TABLE transient_responses (
    id           text PRIMARY KEY CHECK (id ~ '^resp_[0-9a-z]{1,60}$'),
    key_id       text NOT NULL,
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
CREATE INDEX transient_responses_by_key ON transient_responses (key_id, created_at) INCLUDE (bytes);
CREATE INDEX transient_responses_by_expiry ON transient_responses (expires_at);

CREATE VIEW kept_responses AS
    SELECT id, key_id, previous_id, status, input, output, created_at, tended_at, expires_at, true AS is_stored
    FROM responses
    UNION ALL
    SELECT id, key_id, previous_id, status, input, output, created_at, tended_at, expires_at, false
    FROM transient_responses;
