"""A Postgres for all tests about money; each has a database of its own in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.testing.clocks import ManualClock
from tests.integration.databases import fresh_database
from tests.integration.money.samples import NOON_S


@pytest.fixture
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with fresh_database(server) as dsn:
        yield dsn


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    database = await Database.connect(dsn)
    yield database
    await database.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_s=100.0, unix_s=NOON_S)
