-- Eras of rewards. The inputs are the published document, to the byte: from it anyone computes the same amounts.
CREATE TABLE reward_eras (
    era             bigint PRIMARY KEY CHECK (era > 0),
    since           timestamptz NOT NULL,
    until           timestamptz NOT NULL CHECK (until > since),
    inputs          text NOT NULL,
    inputs_hash     bytea NOT NULL CHECK (length(inputs_hash) = 32),
    pool_micro      bigint NOT NULL CHECK (pool_micro >= 0),
    given_micro     bigint NOT NULL CHECK (given_micro BETWEEN 0 AND pool_micro),
    carried_nano    bigint NOT NULL CHECK (carried_nano >= 0),
    epoch           bigint,               -- of the batch in the pool of rewards; none if nothing was given
    fees_left_nano  bigint NOT NULL,      -- in network:fees, after the era took its share
    lease_fees_micro numeric(78) NOT NULL -- by all final events up to then
);

-- What was counted of each node in each era, whose it was then, and what it got. Tiers are decided from it.
CREATE TABLE era_nodes (
    era                bigint NOT NULL REFERENCES reward_eras (era),
    node_id            text NOT NULL,
    account_id         text NOT NULL,
    until              timestamptz NOT NULL,
    up_s               bigint NOT NULL,
    known_s            bigint NOT NULL,
    done               bigint NOT NULL,
    failed             bigint NOT NULL,
    checks_passed      bigint NOT NULL,
    checks_failed      bigint NOT NULL,
    good_units         bigint NOT NULL,      -- jobs in millionths, by what was at risk
    bad_units          bigint NOT NULL,
    availability_micro bigint NOT NULL,
    uptime_micro       bigint NOT NULL,
    quality_micro      bigint NOT NULL,
    PRIMARY KEY (era, node_id)
);
CREATE INDEX era_nodes_by_node ON era_nodes (node_id, until);
CREATE INDEX era_nodes_by_account ON era_nodes (account_id, era);

-- What the counts of a day had come to when an era ended within it: the next era begins there.
CREATE TABLE era_marks (
    node_id       text NOT NULL,
    day           date NOT NULL,
    up_s          double precision NOT NULL,
    known_s       double precision NOT NULL,
    failed        bigint NOT NULL,
    checks_passed bigint NOT NULL,
    checks_failed bigint NOT NULL,
    PRIMARY KEY (node_id, day)
);

-- Nodes whose rewards their owner wants as the provider's bond, instead of at the account's address.
CREATE TABLE rewards_to_bond (node_id text PRIMARY KEY);
