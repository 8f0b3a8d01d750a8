"""What nodes made of their jobs, in a real Postgres: gateways add to the same days, and old days go."""

from __future__ import annotations

import datetime as dt

from sparewatt.core.ids import NodeId
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.node_results import KEPT_DAYS, NodeResultCount
from tests.integration.databases import fresh_database

NODE, OTHER = NodeId("0xa"), NodeId("0xb")


async def test_gateways_add_to_the_same_days_and_old_ones_are_forgotten(server: EmbeddedPostgres) -> None:
    today = dt.datetime.now(tz=dt.UTC).date()
    old = today - dt.timedelta(days=KEPT_DAYS + 1)
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.node_results
        await store.add([NodeResultCount(NODE, today, "done", 3, 100.0), NodeResultCount(OTHER, today, "done", 1, 1.0)])
        await store.add(
            [NodeResultCount(NODE, today, "done", 2, 90.0), NodeResultCount(NODE, old, "link_lost", 1, 10.0)]
        )
        known = await store.counts_of(NODE)
        assert known == [
            NodeResultCount(NODE, old, "link_lost", 1, 10.0),
            NodeResultCount(NODE, today, "done", 5, 100.0),
        ]
        await store.forget_old()
        assert await store.counts_of(NODE) == [NodeResultCount(NODE, today, "done", 5, 100.0)]
        await database.close()
