-- What clients store beside responses, for a day: conversations, their items, and chat completions. Sealed as `responses`
-- are. A folder is a kind of document, or the conversation that items belong to; `number` is the order within it.
CREATE TABLE shelf_documents (
    key_id       text NOT NULL REFERENCES api_keys (id),
    folder       text NOT NULL CHECK (folder ~ '^[0-9a-z_]{1,80}$'),
    id           text NOT NULL CHECK (id ~ '^[0-9a-zA-Z_-]{1,100}$'),
    number       bigint GENERATED ALWAYS AS IDENTITY,
    sealed       bytea NOT NULL,
    bytes        bigint NOT NULL GENERATED ALWAYS AS (length(sealed)) STORED,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (key_id, folder, id)
);
CREATE INDEX shelf_documents_in_order ON shelf_documents (key_id, folder, number) INCLUDE (bytes, expires_at);
CREATE INDEX shelf_documents_by_expiry ON shelf_documents (expires_at);
