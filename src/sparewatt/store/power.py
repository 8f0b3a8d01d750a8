"""The energy that nodes drew while they worked, by day. Owners see it next to their earnings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import NodeId
from sparewatt.store.connection_pool import Store


@dataclass(frozen=True, slots=True)
class DailyEnergy:
    node_id: NodeId
    day: dt.date
    joules: float
    working_s: float


@dataclass(frozen=True, slots=True)
class MeanPower:
    watts: float
    working_s: float


class PowerStore(Store):
    async def add(self, days: Sequence[DailyEnergy]) -> None:
        await self._pool.execute("add_node_power", *zip(*map(astuple, days), strict=True))

    async def mean_power_of(
        self, nodes: Sequence[NodeId], *, from_unix_s: float, to_unix_s: float
    ) -> dict[NodeId, MeanPower]:
        rows = await self._pool.rows("power_of", list(nodes), from_unix_s, to_unix_s)
        return {NodeId(row["node_id"]): MeanPower(row["watts"], row["working_s"]) for row in rows}

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_power")
