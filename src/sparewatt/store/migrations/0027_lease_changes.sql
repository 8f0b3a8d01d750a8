-- What a renter lets one lease cost at most; null: no cap but its deposit, to which only the renter adds.
ALTER TABLE lease_orders ADD COLUMN max_spend_micro bigint CHECK (max_spend_micro > 0);

-- The history of one order is read by its id.
CREATE INDEX chain_events_by_lease ON chain_events ((coalesce(args ->> 'lease_id', args ->> 'order_id')));
