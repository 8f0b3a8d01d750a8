"""The embedded PostgreSQL server: find its programs, start it, keep it running, stop it. Queries are store/'s."""
