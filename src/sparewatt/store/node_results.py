"""How attempts ended, counted by node, day and result. `trust/reputation.py` computes from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import NodeId
from sparewatt.store.connection_pool import Store

KEPT_DAYS = 90
"""After that a day weighs a ten-thousandth of what it did at first."""
ROWS_MAX = 16 * (KEPT_DAYS + 2)
"""Of one node: there are fewer than sixteen results."""


@dataclass(frozen=True, slots=True)
class NodeResultCount:
    node_id: NodeId
    day: dt.date
    result: str
    count: int
    last_unix_s: float


class NodeResultStore(Store):
    async def add(self, counts: Sequence[NodeResultCount]) -> None:
        """All or none. Each node, day and result at most once."""
        await self._pool.execute("add_node_record", *zip(*map(astuple, counts), strict=True))

    async def counts_of(self, node_id: NodeId) -> list[NodeResultCount]:
        rows = await self._pool.rows("node_record_of", node_id, ROWS_MAX)
        return [
            NodeResultCount(node_id, row["day"], row["result"], row["count"], row["last_at"].timestamp())
            for row in rows
        ]

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_node_record", KEPT_DAYS)
