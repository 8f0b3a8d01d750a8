-- How checks of nodes' answers ended, by node, day and kind of check: a re-run of a customer's request on a second node,
-- a probe (a prompt of the network's own making), or the form of an answer (tool calls, schemas). No job, no account.
CREATE TABLE check_counts (
    node_id text NOT NULL,
    day     date NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('rerun', 'probe', 'schema')),
    passed  bigint NOT NULL CHECK (passed >= 0),
    failed  bigint NOT NULL CHECK (failed >= 0),
    last_at timestamptz NOT NULL,
    PRIMARY KEY (node_id, day, kind)
);
CREATE INDEX check_counts_by_day ON check_counts (day);
