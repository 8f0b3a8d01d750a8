-- A sheet of receipts has one signature: of those that are disputed, all that shows what the node signed.
ALTER TABLE receipts ADD COLUMN proof bytea;

-- Why an answer ended, as its client was told.
ALTER TABLE jobs ADD COLUMN finish_reason text;

-- Nobody looks for postings by account: what an account did is in jobs, attempts and transfers, sums are in balances, and
-- an audit reads all. Keeping the index took a third of what a settled job costs.
DROP INDEX postings_by_account;
