-- How fast a model is on a node, as this network's gateways have timed it. Bounded by the nodes and by what each may have.
CREATE TABLE node_timings (
    node_id    text NOT NULL,
    model      text NOT NULL,
    read_s     float8 NOT NULL CHECK (read_s > 0),
    step_s     float8 NOT NULL CHECK (step_s > 0),
    reads      bigint NOT NULL CHECK (reads >= 0),
    writes     bigint NOT NULL CHECK (writes >= 0),
    jobs       bigint NOT NULL CHECK (jobs > 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, model)
);
CREATE INDEX node_timings_by_age ON node_timings (updated_at);
