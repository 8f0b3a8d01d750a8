-- Leases that ended below the uptime that the operator answers for, and what their renters are credited. The transfer
-- with the cause 'uptime:<order>' is what pays; `paid_at` only spares looking for it.
CREATE TABLE uptime_credits (
    order_id   text PRIMARY KEY,
    lease_id   text NOT NULL,
    account_id text NOT NULL,
    ppm        integer NOT NULL CHECK (ppm BETWEEN 0 AND 1000000),
    due_nano   bigint NOT NULL CHECK (due_nano >= 0),
    reason     text,
    ended_at   timestamptz NOT NULL,
    paid_at    timestamptz,
    CHECK ((reason IS NULL) = (due_nano > 0))
);
CREATE INDEX uptime_credits_due ON uptime_credits (ended_at, order_id) WHERE paid_at IS NULL AND due_nano > 0;
CREATE INDEX uptime_credits_ended ON uptime_credits (ended_at);

-- Whose order it is.
CREATE INDEX chain_requests_by_order ON chain_requests ((result ->> 'order_id')) WHERE kind = 'order';
