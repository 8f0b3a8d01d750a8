"""The chain and the database of the integration tests, for their long counts."""

from __future__ import annotations

from tests.integration.chain.conftest import anvil, anvil_binary, dsn, postgres_dsn, setting

__all__ = ["anvil", "anvil_binary", "dsn", "postgres_dsn", "setting"]
