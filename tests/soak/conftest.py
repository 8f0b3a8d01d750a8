"""The chain and the database of the integration tests, for their long counts."""

from __future__ import annotations

from tests.integration.chain.conftest import anvil, anvil_binary, dsn, setting
from tests.integration.conftest import server

__all__ = ["anvil", "anvil_binary", "dsn", "server", "setting"]
