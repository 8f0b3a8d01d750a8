"""What nodes made of their jobs, by day and result."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.ids import NodeId
from sparewatt.store.connection_pool import ConnectionPool

KEPT_DAYS = 90
"""By then a day counts for a ten-thousandth of what it did."""
ROWS_MAX = 16 * (KEPT_DAYS + 2)
"""Of one node: there are fewer results than sixteen."""


@dataclass(frozen=True, slots=True)
class NodeResultCount:
    node_id: NodeId
    day: dt.date
    result: str
    count: int
    last_unix_s: float


class NodeResultStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def add(self, days: Sequence[NodeResultCount]) -> None:
        """All or none. Each node, day and result at most once."""
        rows = ((each.node_id, each.day, each.result, each.count, each.last_unix_s) for each in days)
        await self._pool.execute("add_node_record", *map(list, zip(*rows, strict=True)))

    async def counts_of(self, node_id: NodeId) -> list[NodeResultCount]:
        rows = await self._pool.rows("node_record_of", node_id, ROWS_MAX)
        return [
            NodeResultCount(node_id, row["day"], row["result"], row["count"], row["last_at"].timestamp())
            for row in rows
        ]

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_node_record", KEPT_DAYS)
