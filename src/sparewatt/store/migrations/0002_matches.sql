-- Explanations of matches: every failure and one in a hundred of the rest, for a week. Numbers and ids, never content.
-- `json` and not `jsonb`: it is read whole, and a model's name may hold what jsonb cannot.
CREATE TABLE matches (
    id          text PRIMARY KEY,
    key_id      text NOT NULL,
    created_at  timestamptz NOT NULL,
    outcome     text NOT NULL,
    explanation json NOT NULL
);
CREATE INDEX matches_by_created_at ON matches (created_at);
