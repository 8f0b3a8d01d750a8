-- The tier of each node, as the last look at its history decided. A node without a row is of the lowest tier.
CREATE TABLE node_tiers (
    node_id text PRIMARY KEY,
    tier    text NOT NULL CHECK (tier IN ('community', 'verified', 'datacenter')),
    since   timestamptz NOT NULL
);
