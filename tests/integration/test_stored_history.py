"""History in a real Postgres: added to by several, kept as long as it says, read as lines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.history import DAY_S, HOUR_S, KEPT_S, MINUTE_S, HistoryCounts
from sparewatt.telemetry.history.interval import empty
from tests.integration.databases import fresh_database


@pytest.fixture
async def database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        yield database
        await database.close()


def some(*, gpus: int) -> HistoryCounts:
    first = empty()
    first[10] = 2
    return HistoryCounts(jobs=3, failed=1, tokens=100, first_token=first, up_s=10.0, known_s=10.0, nodes=5, gpus=gpus)


async def test_gateways_add_to_the_same_steps(database: Database) -> None:
    store, now = database.history, time.time()
    await store.add({("network", ""): some(gpus=4), ("error", "no_capacity"): HistoryCounts(jobs=2)}, unix_s=now)
    await store.add({("network", ""): some(gpus=2), ("node", "0xa"): HistoryCounts(up_s=5.0, known_s=9.0)}, unix_s=now)
    for step_s in (MINUTE_S, HOUR_S, DAY_S):
        [point] = await store.points("network", step_s=step_s, since_unix_s=now - DAY_S, name=None, limit=10)
        figures = point.figures
        assert (figures.jobs, figures.failed, figures.tokens, figures.gpus, figures.nodes) == (6, 2, 200, 4, 5)
        assert (figures.first_token[10], sum(figures.first_token), figures.speed) == (4, 4, [])
        assert (figures.up_s, figures.known_s) == (20.0, 20.0)
    [day] = await store.points("node", step_s=DAY_S, since_unix_s=now - DAY_S, name="0xa", limit=10)
    assert (day.figures.up_s, day.figures.known_s) == (5.0, 9.0)
    assert await store.points("node", step_s=HOUR_S, since_unix_s=0, name=None, limit=10) == []
    assert await store.points("node", step_s=DAY_S, since_unix_s=0, name="0xb", limit=10) == []


async def test_nobody_is_up_for_longer_than_the_step_is(database: Database) -> None:
    store, now = database.history, time.time()
    for _ in range(3):
        await store.add({("network", ""): HistoryCounts(up_s=50.0, known_s=50.0)}, unix_s=now)
    [point] = await store.points("network", step_s=MINUTE_S, since_unix_s=now - DAY_S, name=None, limit=10)
    assert (point.figures.up_s, point.figures.known_s) == (60.0, 60.0)


async def test_steps_are_forgotten_when_their_time_is_over(database: Database) -> None:
    store, now = database.history, time.time()
    for step_s, kept_s in KEPT_S.items():
        for at in (now - kept_s - 2 * step_s, now - kept_s + 2 * step_s):
            await store.add({("network", ""): HistoryCounts(jobs=1)}, unix_s=at)
    await store.forget_old()
    for step_s, kept_s in KEPT_S.items():
        points = await store.points("network", step_s=step_s, since_unix_s=0, name=None, limit=100)
        assert all(point.at.timestamp() >= now - kept_s - step_s for point in points)
        assert points
