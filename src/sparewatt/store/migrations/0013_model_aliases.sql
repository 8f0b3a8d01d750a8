-- The operator's aliases: what else models are called, by the id that a server or a client uses, or by weights digest.
-- Bounded by the insert.
CREATE TABLE model_aliases (
    name       text PRIMARY KEY,
    target     text NOT NULL CHECK (target <> name),
    created_at timestamptz NOT NULL DEFAULT now()
);
