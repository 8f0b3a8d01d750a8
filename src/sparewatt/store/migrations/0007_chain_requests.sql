-- What accounts ask of the chain by way of the network: to deposit from their address, to claim what they earned. The
-- chain's process makes transactions of a request, in one step with marking it decided; its end is read from the chain.
CREATE TABLE chain_requests (
    id         text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 180),
    kind       text NOT NULL CHECK (kind IN ('deposit', 'claim')),
    account_id text NOT NULL,
    address    text NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
    micro      bigint NOT NULL CHECK (micro > 0),
    epoch      bigint,
    state      text NOT NULL DEFAULT 'asked' CHECK (state IN ('asked', 'decided', 'done', 'failed')),
    reason     text,
    tx         text,
    asked_at   timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((kind = 'claim') = (epoch IS NOT NULL))
);
CREATE INDEX chain_requests_open ON chain_requests (address, asked_at) WHERE state IN ('asked', 'decided');
