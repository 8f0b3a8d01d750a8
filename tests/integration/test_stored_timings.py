"""What gateways have timed of nodes, in a real Postgres: who has timed more knows better."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.core.ids import NodeId
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.node_timings import StoredTiming
from tests.integration.databases import fresh_database

TIMING = StoredTiming(NodeId("0xa"), "m", 0.5, 0.02, 3, 4, 5)


async def test_more_jobs_replace_fewer_and_old_timings_are_forgotten(server: EmbeddedPostgres) -> None:
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.node_timings
        await store.put([TIMING, replace(TIMING, model="n")])
        better, worse = replace(TIMING, jobs=9, step_s=0.04), replace(TIMING, jobs=8, step_s=1e-6)
        await store.put([better])
        await store.put([worse])
        assert await store.of([TIMING.node_id, NodeId("0xb")]) == [better, replace(TIMING, model="n")]
        assert await store.of([]) == []
        await store.forget_old()
        assert len(await store.of([TIMING.node_id])) == 2
        await database.close()
