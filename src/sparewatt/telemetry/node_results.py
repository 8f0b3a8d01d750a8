"""How attempts ended by node and day, counted until it is stored: what reputation is made of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from sparewatt.core.ids import NodeId
from sparewatt.store.node_results import NodeResultCount
from sparewatt.trust.reputation import AttemptResult

WAITING_MAX = 200_000
"""Nodes, days and results that wait for the database; when it is away for longer, what comes is not counted."""

DAY_S = 86_400.0
_EPOCH = dt.date(1970, 1, 1)
_Key = tuple[NodeId, float, str]
"""Node, number of the day since 1970, result."""


class _Count(msgspec.Struct, gc=False):
    count: int
    last_unix_s: float


class NodeResults:
    def __init__(self) -> None:
        self._waiting: dict[_Key, _Count] = {}

    def add(self, node_id: NodeId, result: AttemptResult, *, unix_s: float) -> None:
        self._add((node_id, unix_s // DAY_S, result), 1, unix_s)

    def take(self) -> list[NodeResultCount]:
        """What is not stored yet. Whoever cannot store it gives it back."""
        waiting, self._waiting = self._waiting, {}
        return [
            NodeResultCount(node_id, _EPOCH + dt.timedelta(day), str(result), each.count, each.last_unix_s)
            for (node_id, day, result), each in waiting.items()
        ]

    def give_back(self, days: Sequence[NodeResultCount]) -> None:
        for each in days:
            day = float((each.day - _EPOCH).days)
            self._add((each.node_id, day, each.result), each.count, each.last_unix_s)

    def _add(self, key: _Key, count: int, unix_s: float) -> None:
        known = self._waiting.get(key)
        if known is not None:
            known.count += count
            known.last_unix_s = max(known.last_unix_s, unix_s)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting[key] = _Count(count, unix_s)
