-- How the auction of an order went, as validators told a gateway, one row per attempt. `evidence` holds what was checked,
-- with who said it; `record` is one validator's whole record for a replay; `certificate` what the chain takes.
CREATE TABLE lease_matches (
    order_id      text NOT NULL,
    attempt       int NOT NULL CHECK (attempt >= 0),
    version       bigint NOT NULL DEFAULT 1,
    opened_at     bigint NOT NULL,
    evidence      text NOT NULL CHECK (octet_length(evidence) <= 4194304),
    certificate   text CHECK (octet_length(certificate) <= 1048576),
    certified_at  timestamptz,
    record        text CHECK (octet_length(record) <= 8388608),
    record_from   text,
    changed_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, attempt)
);
CREATE INDEX lease_matches_age ON lease_matches (changed_at);
CREATE INDEX lease_matches_certified ON lease_matches (certified_at) WHERE certificate IS NOT NULL;

-- An attempt's time, which the chain's process reads from the contracts and gateways need.
ALTER TABLE chain_index ADD COLUMN attempt_s int NOT NULL DEFAULT 60 CHECK (attempt_s >= 1);

CREATE INDEX chain_events_of_matches ON chain_events ((args->>'order_id')) WHERE contract = 'task_manager';
