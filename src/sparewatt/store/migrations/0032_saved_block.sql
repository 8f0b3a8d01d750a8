-- The newest block that a local chain has on disk: a kill of the chain loses those above it, so they are not final yet.
-- NULL for chains whose blocks survive their node.
ALTER TABLE chain_index ADD COLUMN saved_block bigint;
