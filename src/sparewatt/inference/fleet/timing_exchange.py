"""Shares what gateways have timed: stores what this one has learned, and takes up what others know of its newcomers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Protocol

from sparewatt.core.cleanup import on_failure
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import Timing
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.node_timings import StoredTiming

TIMINGS_S = 10.0
NODES_AT_ONCE = 500


class TimingStore(Protocol):
    """Implemented by `NodeTimingStore`."""

    async def put(self, timings: Sequence[StoredTiming]) -> None: ...

    async def of(self, node_ids: Collection[NodeId]) -> Sequence[StoredTiming]: ...


class TimingExchange:
    def __init__(self, table: NodeTable, store: TimingStore) -> None:
        self._table, self._store = table, store

    async def exchange(self) -> None:
        await self._save()
        await self._load()

    async def _save(self) -> None:
        """What changes meanwhile, or could not be stored, is stored the next time."""
        changed = self._table.newly_timed
        while changed:
            nodes = list(islice(changed, NODES_AT_ONCE))
            timings = [
                StoredTiming(node_id, model, *timing)
                for node_id in nodes
                if self._table.get(node_id) is not None
                for model, timing in self._table.timings_of(node_id).items()
                if timing.jobs
            ]
            changed.difference_update(nodes)
            with on_failure(changed.update, nodes):
                if timings:
                    await self._store.put(timings)

    async def _load(self) -> None:
        newcomers = self._table.newcomers.everyone()
        for first in range(0, len(newcomers), NODES_AT_ONCE):
            nodes = newcomers[first : first + NODES_AT_ONCE]
            found: dict[NodeId, dict[str, Timing]] = {}
            for each in await self._store.of(nodes):
                timing = Timing(each.read_s, each.step_s, each.reads, each.writes, each.jobs)
                found.setdefault(each.node_id, {})[each.model] = timing
            for node_id, timings in found.items():
                if self._table.get(node_id) is not None:
                    self._table.restore(node_id, timings)
