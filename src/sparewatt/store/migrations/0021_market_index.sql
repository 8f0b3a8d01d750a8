-- What the gateways need to fold the index's events in memory: the time of an event's block, whether events that they have
-- seen were removed since, and how deep an event must be before it moves money.
ALTER TABLE chain_events ADD COLUMN unix_s bigint NOT NULL DEFAULT 0;

-- `generation` grows whenever events are removed: those above `common_block`. `depth` is that of the chain's process.
ALTER TABLE chain_index
    ADD COLUMN generation bigint NOT NULL DEFAULT 1,
    ADD COLUMN common_block bigint NOT NULL DEFAULT -1,
    ADD COLUMN depth int NOT NULL DEFAULT 1 CHECK (depth >= 1);
