-- Payouts: batches of what owners earned, as roots of cumulative amounts with six decimals (micro-USD). A batch keeps
-- the leaves that changed; the tree of a batch is the last leaf of every address up to it, in the order of addresses.
CREATE TABLE payout_batches (
    epoch          bigint PRIMARY KEY CHECK (epoch > 0),
    at             timestamptz NOT NULL,
    root           bytea NOT NULL CHECK (length(root) = 32),
    leaves         bigint NOT NULL CHECK (leaves > 0),
    promised_micro bigint NOT NULL CHECK (promised_micro >= 0),
    added_micro    bigint NOT NULL CHECK (added_micro >= 0),
    posted_at      timestamptz,
    posted_tx      text
);

CREATE TABLE payout_leaves (
    address      text COLLATE "C" NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
    epoch        bigint NOT NULL REFERENCES payout_batches (epoch),
    account_id   text NOT NULL,
    earned_micro bigint NOT NULL CHECK (earned_micro >= 0),
    spent_micro  bigint NOT NULL CHECK (spent_micro >= 0),
    added_micro  bigint NOT NULL CHECK (added_micro >= 0),
    PRIMARY KEY (address, epoch)
);
CREATE INDEX payout_leaves_by_account ON payout_leaves (account_id, epoch);

-- What was fetched on chain, as far as it is known here.
CREATE TABLE payout_claims (
    address       text PRIMARY KEY,
    claimed_micro bigint NOT NULL CHECK (claimed_micro >= 0)
);

-- How many free grants an address has had today; addresses are digests, and forgotten after a day.
CREATE TABLE grant_counts (
    who    bytea NOT NULL CHECK (length(who) = 32),
    day    date NOT NULL,
    grants int NOT NULL,
    PRIMARY KEY (who, day)
);

CREATE INDEX transfers_by_kind ON transfers (kind, at);

-- An amount in a root is never lower than in one before.
CREATE FUNCTION refuse_lower_payout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM payout_leaves p WHERE p.address = NEW.address AND p.epoch < NEW.epoch
            AND (p.earned_micro > NEW.earned_micro OR p.spent_micro > NEW.spent_micro)) THEN
        RAISE EXCEPTION 'a payout may not be lowered';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER payouts_never_fall BEFORE INSERT ON payout_leaves FOR EACH ROW EXECUTE FUNCTION refuse_lower_payout();
