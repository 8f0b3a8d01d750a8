-- The books. Append-only double entry in nano-USD: the postings of one cause sum to zero. `balances` is a projection of
-- them, kept in the same transaction, and can be rebuilt. Jobs, attempts, receipts and postings are kept by month.

CREATE TABLE postings (
    cause   text NOT NULL,
    at      timestamptz NOT NULL,
    account text NOT NULL,
    nano    bigint NOT NULL CHECK (nano <> 0)
) PARTITION BY RANGE (at);
CREATE INDEX postings_by_account ON postings (account, at);
CREATE INDEX postings_by_cause ON postings (cause);

CREATE TABLE balances (account text PRIMARY KEY, nano bigint NOT NULL);

-- Sums of postings whose month was dropped, so that balances can still be rebuilt.
CREATE TABLE carried (account text PRIMARY KEY, nano bigint NOT NULL);

-- Months that are gone. A journal that is older than the books' memory must not settle its jobs a second time.
CREATE TABLE dropped_months (month date PRIMARY KEY);

-- What a gateway has reserved of an account's balance, to spend without asking.
CREATE TABLE slices (
    account  text NOT NULL,
    instance text NOT NULL,
    nano     bigint NOT NULL CHECK (nano >= 0),
    PRIMARY KEY (account, instance)
);

-- Everything that moves money and is not a job: grants, deposits, expiry, payouts. The cause makes it happen once.
CREATE TABLE transfers (
    cause      text PRIMARY KEY CHECK (length(cause) BETWEEN 1 AND 200),
    at         timestamptz NOT NULL,
    kind       text NOT NULL,
    account_id text NOT NULL,
    nano       bigint NOT NULL CHECK (nano > 0),
    expires_at timestamptz,
    memo       text
);
CREATE INDEX transfers_by_account ON transfers (account_id, at);

CREATE TABLE jobs (
    id                text NOT NULL,
    opened_at         timestamptz NOT NULL,
    closed_at         timestamptz NOT NULL,
    account_id        text NOT NULL,
    key_id            text NOT NULL,
    model             text NOT NULL,
    state             text NOT NULL CHECK (state IN ('done', 'failed', 'cancelled')),
    reason            text,
    stream            boolean NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cost_nano         bigint NOT NULL CHECK (cost_nano >= 0),
    promo_nano        bigint NOT NULL CHECK (promo_nano BETWEEN 0 AND cost_nano),
    PRIMARY KEY (id, opened_at)
) PARTITION BY RANGE (opened_at);
CREATE INDEX jobs_by_account ON jobs (account_id, opened_at);
CREATE INDEX jobs_by_key ON jobs (key_id, opened_at);

-- What each node delivered of a job. Money is what its owner got of it, and what the network kept.
CREATE TABLE attempts (
    job_id            text NOT NULL,
    opened_at         timestamptz NOT NULL,
    position          smallint NOT NULL,
    node_id           text NOT NULL,
    owner_id          text NOT NULL,
    model             text NOT NULL,
    outcome           text NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    claimed_tokens    bigint NOT NULL,
    prompt_price      bigint NOT NULL,
    completion_price  bigint NOT NULL,
    net_nano          bigint NOT NULL,
    net_promo_nano    bigint NOT NULL,
    fee_nano          bigint NOT NULL,
    first_token_ms    double precision,
    duration_ms       double precision NOT NULL,
    PRIMARY KEY (job_id, opened_at, position)
) PARTITION BY RANGE (opened_at);
CREATE INDEX attempts_by_owner ON attempts (owner_id, opened_at);
CREATE INDEX attempts_by_node ON attempts (node_id, opened_at);

-- What nodes signed for, one per job and node, with what the gateway had seen.
CREATE TABLE receipts (
    job_id            text NOT NULL,
    node_id           text NOT NULL,
    at                timestamptz NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    seen_tokens       bigint NOT NULL,
    disputed          boolean NOT NULL,
    signature         bytea NOT NULL CHECK (length(signature) = 65),
    PRIMARY KEY (job_id, node_id, at)
) PARTITION BY RANGE (at);
CREATE INDEX receipts_disputed ON receipts (node_id, at) WHERE disputed;

-- The books are only ever added to. Whole months go at the end of their keeping, by drop_month.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'postings are append-only';
END $$;
CREATE TRIGGER postings_are_append_only BEFORE UPDATE OR DELETE ON postings
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE FUNCTION ensure_month(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first date := date_trunc('month', day);
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('sparewatt months'));
    -- In the order in which a batch of jobs locks them, and only if it must: each of these stops the posting.
    FOREACH name IN ARRAY ARRAY['jobs', 'attempts', 'postings', 'receipts'] LOOP
        CONTINUE WHEN to_regclass(name || to_char(first, '_YYYY_MM')) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
            name || to_char(first, '_YYYY_MM'), name,
            to_char(first, 'YYYY-MM-DD') || ' 00:00:00+00',
            to_char(first + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00');
    END LOOP;
END $$;

CREATE FUNCTION drop_month(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first date := date_trunc('month', day);
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('sparewatt months'));
    LOCK TABLE jobs, attempts, postings, receipts;  -- what is being posted counts as well
    INSERT INTO carried (account, nano)
        SELECT account, sum(nano) FROM postings
        WHERE at >= (first::text || ' 00:00:00+00')::timestamptz
          AND at < ((first + interval '1 month')::date::text || ' 00:00:00+00')::timestamptz
        GROUP BY account HAVING sum(nano) <> 0
        ON CONFLICT (account) DO UPDATE SET nano = carried.nano + excluded.nano;
    INSERT INTO dropped_months VALUES (first) ON CONFLICT DO NOTHING;
    FOREACH name IN ARRAY ARRAY['postings', 'jobs', 'attempts', 'receipts'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', name || to_char(first, '_YYYY_MM'));
    END LOOP;
END $$;
