"""Puts what was counted into Postgres, in the background. While that is away, counting goes on and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.store.history import HistoryKind, HistoryStore
from sparewatt.store.node_results import NodeResultStore
from sparewatt.telemetry.job_counter import JobCounter

STORE_S = 10.0
NODES_EVERY = 6
"""Rounds between two in which what each node did is stored: ten thousand rows are a tenth of a second's work."""
_OFTEN: tuple[HistoryKind, ...] = ("network", "model", "error")
_ALL: tuple[HistoryKind, ...] = (*_OFTEN, "node")


class HistoryWriter:
    def __init__(
        self,
        counter: JobCounter,
        rows: Iterable[NodeRow],
        store: HistoryStore,
        records: NodeResultStore,
        *,
        clock: Clock,
        counts_uptime: Callable[[], bool] = lambda: True,
        is_elsewhere: Callable[[NodeId], bool] = lambda _: False,
    ) -> None:
        """`counts_uptime`: whether it is this process of the gateway that does; a minute that each counted is many.

        `is_elsewhere`: whether another process has a link to a node.
        """
        self._counter = counter
        self._rows = rows
        self._store = store
        self._records = records
        self._clock = clock
        self._counts_uptime = counts_uptime
        self._is_elsewhere = is_elsewhere
        self._looked_s = clock.now_s()
        self._round = 0

    async def store(self) -> None:
        """Called every STORE_S. Raises StoreUnavailable, with nothing lost."""
        self._add_uptime()
        self._round += 1
        await self._store_figures(_ALL if self._round % NODES_EVERY == 0 else _OFTEN)
        await self._store_results()

    async def close(self) -> None:
        self._add_uptime()
        await self._store_figures(_ALL)
        await self._store_results()

    def _add_uptime(self) -> None:
        now_s, unix_s = self._clock.now_s(), self._clock.unix_s()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if self._counts_uptime():
            interval, is_elsewhere = self._counter.interval, self._is_elsewhere
            interval.add_uptime(self._rows, passed_s=passed_s, unix_s=unix_s, is_elsewhere=is_elsewhere)

    async def _store_figures(self, kinds: tuple[HistoryKind, ...]) -> None:
        interval = self._counter.interval
        taken = interval.take(kinds)
        try:
            await self._store.add(taken, unix_s=self._clock.unix_s())
        except BaseException:
            interval.give_back(taken)
            raise

    async def _store_results(self) -> None:
        """Only of nodes that had jobs: few enough for every round."""
        results = self._counter.results
        taken = results.take()
        try:
            if taken:
                await self._records.add(taken)
        except BaseException:
            results.give_back(taken)
            raise
