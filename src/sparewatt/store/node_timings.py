"""How fast nodes are by this network's own timing: what one gateway has learned holds at all, and after a restart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import NodeId
from sparewatt.store.connection_pool import Store

KEPT_DAYS = 90
"""A node that nobody has timed for so long is a newcomer again."""
ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class StoredTiming:
    """Of one model on one node; the fields are those of the matcher's `Timing`."""

    node_id: NodeId
    model: str
    read_s: float
    step_s: float
    reads: int
    writes: int
    jobs: int


class NodeTimingStore(Store):
    async def put(self, timings: Sequence[StoredTiming]) -> None:
        """All or none; each node and model at most once. Those of more jobs than are known replace what is known."""
        await self._pool.execute("put_node_timings", *zip(*map(astuple, timings), strict=True))

    async def of(self, node_ids: Collection[NodeId]) -> list[StoredTiming]:
        return await self._pool.rows_as(StoredTiming, "node_timings_of", list(node_ids), ROWS_MAX)

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_node_timings", KEPT_DAYS)
