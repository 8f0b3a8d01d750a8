"""Stores what was counted in Postgres, in the background. While Postgres is away counting goes on: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sparewatt.core.cleanup import on_failure
from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.store.history import HistoryKind, HistoryStore
from sparewatt.store.node_results import NodeResultStore
from sparewatt.telemetry.job_counter import JobCounter

STORE_S = 10.0
NODES_EVERY = 6
"""Every so many rounds the figures of nodes are stored: ten thousand rows are a tenth of a second's work."""
_OFTEN: tuple[HistoryKind, ...] = ("network", "model", "error")
_ALL: tuple[HistoryKind, ...] = (*_OFTEN, "node")


@dataclass(slots=True)
class HistoryWriter:
    counter: JobCounter
    rows: Iterable[NodeRow]
    history_store: HistoryStore
    result_store: NodeResultStore
    clock: Clock = field(kw_only=True)
    counts_uptime: Callable[[], bool] = field(kw_only=True, default=lambda: True)
    """Whether this process counts uptime: of several, only one does."""
    has_peer_link: Callable[[NodeId], bool] = field(kw_only=True, default=lambda _: False)
    """Whether another process has a link to a node."""
    _counted_s: float = field(init=False)
    """Until when uptime is counted."""
    _round: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._counted_s = self.clock.now_s()

    async def store(self) -> None:
        """Called every STORE_S. Raises StoreUnavailable, with nothing lost."""
        self._round += 1
        await self._store(_ALL if self._round % NODES_EVERY == 0 else _OFTEN)

    async def close(self) -> None:
        await self._store(_ALL)

    async def _store(self, kinds: tuple[HistoryKind, ...]) -> None:
        self._add_uptime()
        await self._store_figures(kinds)
        await self._store_results()

    def _add_uptime(self) -> None:
        now_s, unix_s = self.clock.now_s(), self.clock.unix_s()
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        if self.counts_uptime():
            self.counter.interval.add_uptime(
                self.rows, passed_s=passed_s, unix_s=unix_s, has_peer_link=self.has_peer_link
            )

    async def _store_figures(self, kinds: tuple[HistoryKind, ...]) -> None:
        interval = self.counter.interval
        taken = interval.take(kinds)
        with on_failure(interval.give_back, taken):
            await self.history_store.add(taken, unix_s=self.clock.unix_s())

    async def _store_results(self) -> None:
        """Only nodes that had jobs have results: few enough for every round."""
        results = self.counter.results
        taken = results.take()
        with on_failure(results.give_back, taken):
            if taken:
                await self.result_store.add(taken)
