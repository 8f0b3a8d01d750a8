-- What checks of answers found, one row per node and check. Evidence of a probe is public: its seed gives the prompt, and
-- the answers are kept. Of a customer's request there are digests and positions, never text.
CREATE TABLE check_verdicts (
    id         text PRIMARY KEY,
    at         timestamptz NOT NULL,
    node_id    text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('rerun', 'probe')),
    result     text NOT NULL CHECK (result IN ('passed', 'failed')),
    state      text NOT NULL,
    evidence   jsonb NOT NULL,
    retrial_of text,
    retried    boolean NOT NULL DEFAULT false
);
CREATE INDEX check_verdicts_by_node ON check_verdicts (node_id, at);
CREATE INDEX check_verdicts_by_time ON check_verdicts (at);

-- Where each node stands after its verdicts. `version` grows with every change, so that gateways read what is new.
CREATE SEQUENCE check_record_version;
CREATE TABLE check_records (
    node_id          text PRIMARY KEY,
    state            text NOT NULL,
    passed           int NOT NULL,
    failed_probes    int NOT NULL,
    past_pieces      int NOT NULL,
    past_differences int NOT NULL,
    barred_until     timestamptz,
    version          bigint NOT NULL
);
CREATE INDEX check_records_by_version ON check_records (version);

-- What answers of nodes that need not be doubted were like, by what is comparable: the tolerance is learned from it.
CREATE TABLE honest_pairs (
    comparable  text PRIMARY KEY,
    pieces      bigint NOT NULL,
    differences bigint NOT NULL
);
