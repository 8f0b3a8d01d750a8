"""What the network did in the last day and month: counted in memory, kept in Postgres, shown as lines."""
