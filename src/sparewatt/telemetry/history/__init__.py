"""The history of the last day and month: counted in memory, stored in Postgres, published as points."""
