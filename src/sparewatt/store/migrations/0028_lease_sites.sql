-- Leases with a public address: the port that visitors reach. Its label is the lease's id, so no two leases share one.
CREATE TABLE lease_sites (
    lease_id   text PRIMARY KEY,
    account_id text NOT NULL,
    port       integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    created_at timestamptz NOT NULL DEFAULT now()
);
