"""What nodes made of their jobs, by day and result."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.ids import NodeId
from sparewatt.store.pool import Pool

KEPT_DAYS = 90
"""By then a day counts for a ten-thousandth of what it did."""
ROWS_MAX = 16 * (KEPT_DAYS + 2)
"""Of one node: there are fewer results than sixteen."""


@dataclass(frozen=True, slots=True)
class DayRecord:
    node_id: NodeId
    day: dt.date
    result: str
    count: int
    last_unix_s: float


class RecordStore:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def add(self, days: Sequence[DayRecord]) -> None:
        """All or none. Each node, day and result at most once."""
        rows = ((each.node_id, each.day, each.result, each.count, each.last_unix_s) for each in days)
        await self._pool.do("add_node_record", *map(list, zip(*rows, strict=True)))

    async def of(self, node_id: NodeId) -> list[DayRecord]:
        rows = await self._pool.rows("node_record_of", node_id, ROWS_MAX)
        return [DayRecord(node_id, row["day"], row["result"], row["count"], row["last_at"].timestamp()) for row in rows]

    async def forget_old(self) -> None:
        await self._pool.do("forget_old_node_record", KEPT_DAYS)
