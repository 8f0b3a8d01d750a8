-- Whose orders have a specification: its document is given out for these only.
CREATE INDEX lease_orders_spec ON lease_orders (spec_hash);
