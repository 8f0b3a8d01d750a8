-- What nodes made of the jobs that they were sent, by day: how often each result, and when last. No job, no account.
-- Bounded by its retention, and by the few results that there are.
CREATE TABLE node_record (
    node_id text NOT NULL,
    day     date NOT NULL,
    result  text NOT NULL,
    count   bigint NOT NULL CHECK (count > 0),
    last_at timestamptz NOT NULL,
    PRIMARY KEY (node_id, day, result)
);
CREATE INDEX node_record_by_day ON node_record (day);
