-- A sheet of receipts has one signature: of those that are disputed, all that shows what the node signed.
ALTER TABLE receipts ADD COLUMN proof bytea;
