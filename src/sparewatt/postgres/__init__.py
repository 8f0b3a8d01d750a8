"""The embedded PostgreSQL server: finds its programs, starts, restarts and stops it. Queries are in store/."""
