-- A sheet of receipts has one signature: of those that are disputed, all that shows what the node signed.
ALTER TABLE receipts ADD COLUMN proof bytea;

-- Why an answer ended, as its client was told.
ALTER TABLE jobs ADD COLUMN finish_reason text;

-- Nobody looks for postings by account: what an account did is in jobs, attempts and transfers, sums are in balances, and
-- an audit reads all. Those of one cause are found by its time, which costs nothing to keep: a job's five lines in two
-- indexes took more than all else that is written when it settles. Attempts are always looked for by their owner.
DROP INDEX postings_by_account, postings_by_cause, attempts_by_node;
CREATE INDEX postings_by_time ON postings USING brin (at);
