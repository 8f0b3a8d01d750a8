"""The operator's aliases of models in a real Postgres."""

from __future__ import annotations

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store import model_aliases
from sparewatt.store.database import Database
from tests.integration.databases import fresh_database


async def test_aliases_are_put_changed_listed_and_dropped_and_there_are_only_so_many(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_aliases, "ALIASES_MAX", 2)
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.model_aliases
        for name, target in (("b", "m"), ("a", "m"), ("b", "n")):
            stored = await store.put(name, target)
            assert stored is not None
            assert (stored.name, stored.target) == (name, target)
        assert await store.put("c", "m") is None
        assert [(alias.name, alias.target) for alias in await store.all()] == [("a", "m"), ("b", "n")]
        dropped = await store.drop("a")
        assert dropped is not None
        assert dropped.created_unix_s > 0
        assert await store.drop("a") is None
        await database.close()
