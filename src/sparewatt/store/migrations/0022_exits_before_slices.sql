-- What an exit asks for and could not be held, because gateways or requests had reserved it. Nobody reserves of an account
-- that lacks something for its exit.
ALTER TABLE credit_holds ADD COLUMN lacking_nano bigint NOT NULL DEFAULT 0 CHECK (lacking_nano >= 0);
CREATE INDEX credit_holds_lacking ON credit_holds (account_id) WHERE lacking_nano > 0;
