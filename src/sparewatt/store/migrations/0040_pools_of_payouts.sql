-- Payouts of both pools of the settlement contract: 0 is credits, 1 is era rewards. Each has batches of its own.
ALTER TABLE payout_leaves DROP CONSTRAINT payout_leaves_epoch_fkey;
ALTER TABLE credit_holds DROP CONSTRAINT credit_holds_epoch_fkey;
ALTER TABLE payout_batches
    ADD COLUMN pool smallint NOT NULL DEFAULT 0 CHECK (pool IN (0, 1)),
    DROP CONSTRAINT payout_batches_pkey, ADD PRIMARY KEY (pool, epoch);
ALTER TABLE payout_leaves
    ADD COLUMN pool smallint NOT NULL DEFAULT 0,
    DROP CONSTRAINT payout_leaves_pkey, ADD PRIMARY KEY (pool, address, epoch),
    ADD FOREIGN KEY (pool, epoch) REFERENCES payout_batches (pool, epoch);
ALTER TABLE payout_claims
    ADD COLUMN pool smallint NOT NULL DEFAULT 0,
    DROP CONSTRAINT payout_claims_pkey, ADD PRIMARY KEY (pool, address);
-- Credits become tokens by the pool of credits alone.
ALTER TABLE credit_holds
    ADD COLUMN pool smallint NOT NULL DEFAULT 0 CHECK (pool = 0),
    ADD FOREIGN KEY (pool, epoch) REFERENCES payout_batches (pool, epoch);

CREATE OR REPLACE FUNCTION refuse_lower_payout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM payout_leaves p WHERE p.pool = NEW.pool AND p.address = NEW.address AND p.epoch < NEW.epoch
            AND (p.earned_micro > NEW.earned_micro OR p.spent_micro > NEW.spent_micro)) THEN
        RAISE EXCEPTION 'a payout may not be lowered';
    END IF;
    RETURN NEW;
END $$;
