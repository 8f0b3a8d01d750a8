-- Requests of many kinds: what a kind needs beside the amount is in `params`, what came of it in `result`. A request may
-- take several steps, each with calls of its own, of which a later one builds on what the chain says of an earlier one.
ALTER TABLE chain_requests
    ADD COLUMN params jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN result jsonb,
    ADD COLUMN step int NOT NULL DEFAULT 0 CHECK (step >= 0),
    ADD COLUMN more_steps boolean NOT NULL DEFAULT false,
    ADD COLUMN due_at timestamptz NOT NULL DEFAULT now();
UPDATE chain_requests SET params = jsonb_build_object('epoch', epoch) WHERE kind = 'claim';
ALTER TABLE chain_requests
    DROP COLUMN epoch,
    DROP CONSTRAINT chain_requests_kind_check,
    DROP CONSTRAINT chain_requests_micro_check,
    ADD CHECK (kind IN ('deposit', 'claim', 'order', 'reopen', 'cancel', 'pause', 'resume', 'close', 'top_up', 'update',
        'register', 'bond', 'unbond', 'status', 'withdraw', 'exit')),
    ADD CHECK (micro > 0 OR micro = 0 AND kind NOT IN ('deposit', 'claim', 'order', 'top_up', 'bond'));
CREATE INDEX chain_requests_of_account ON chain_requests (account_id, kind, asked_at);

-- The request that a transaction belongs to: its transactions are sent by one key, in the order of their ids.
ALTER TABLE chain_outbox ADD COLUMN request_id text;
UPDATE chain_outbox o SET request_id = r.id FROM chain_requests r
WHERE o.business_id IN (r.id || ':faucet', r.id || ':permit', r.id || ':deposit', r.id || ':claim');
CREATE INDEX chain_outbox_of_request ON chain_outbox (request_id, id) WHERE request_id IS NOT NULL;
CREATE INDEX chain_events_by_transaction ON chain_events (tx_hash);
