"""Postgres: the only place with SQL. Statements live in queries/*.sql under a name, the schema in migrations/*.sql."""
