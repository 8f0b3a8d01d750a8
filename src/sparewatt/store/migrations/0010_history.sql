-- What the network did, for lines over a day and a month: counts that gateways add to, one row per step of time.
-- Bounded by its retention: minutes for a day, hours for a month, days for a year.
CREATE TABLE history (
    step_s      integer NOT NULL,
    kind        text NOT NULL,
    name        text NOT NULL,
    at          timestamptz NOT NULL,
    jobs        bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    tokens      bigint NOT NULL DEFAULT 0,
    first_token bigint[] NOT NULL DEFAULT '{}',
    speed       bigint[] NOT NULL DEFAULT '{}',
    up_s        double precision NOT NULL DEFAULT 0,
    known_s     double precision NOT NULL DEFAULT 0,
    nodes       integer NOT NULL DEFAULT 0,
    gpus        integer NOT NULL DEFAULT 0,
    vram_bytes  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (step_s, kind, name, at)
);
CREATE INDEX history_by_at ON history (step_s, at);
