"""How checks of nodes' answers ended, counted by node, day and kind of check. `trust/` computes from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.store.connection_pool import Store
from sparewatt.store.node_results import KEPT_DAYS
from sparewatt.trust.checks.model import CheckKind

KINDS = 3
ROWS_MAX = KINDS * (KEPT_DAYS + 2)
"""Of one node."""


@dataclass(frozen=True, slots=True)
class CheckCount:
    """Of one node, on one day, by one kind of check."""

    node_id: NodeId
    day: dt.date
    kind: CheckKind
    passed: int
    failed: int
    last_unix_s: float


class CheckCountStore(Store):
    async def add(self, counts: Sequence[CheckCount]) -> None:
        """All or none. Each node, day and kind at most once."""
        await self._pool.execute("add_check_counts", *zip(*map(astuple, counts), strict=True))

    async def counts_of(self, node_id: NodeId) -> list[CheckCount]:
        """Oldest day first."""
        return await self._pool.rows_as(CheckCount, "check_counts_of", node_id, ROWS_MAX)

    async def counts_since(self, day: dt.date) -> list[CheckCount]:
        """Of all nodes, by node and day."""
        return await self._pool.rows_as(CheckCount, "check_counts_since", day, NODES_MAX * KINDS)

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_check_counts", KEPT_DAYS)
