"""Puts what was counted into Postgres, in the background. While that is away, counting goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.clock import Clock
from sparewatt.gateway.history.records import RecordBoard
from sparewatt.gateway.history.tally import Tally
from sparewatt.gateway.siblings.siblings import Siblings
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.history import HistoryStore, Kind
from sparewatt.store.records import RecordStore

STORE_S = 10.0
NODES_EVERY = 6
"""Rounds between two in which what each node did is stored: ten thousand rows are a tenth of a second's work."""
_OFTEN: tuple[Kind, ...] = ("network", "model", "error")
_ALL: tuple[Kind, ...] = (*_OFTEN, "node")


class HistoryKeeper:
    def __init__(
        self,
        table: NodeTable,
        store: HistoryStore,
        records: RecordStore,
        *,
        clock: Clock,
        siblings: Siblings | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """`settle`: has `count` called for jobs that are over and were not told of yet."""
        self._table = table
        self._siblings = siblings
        self._store = store
        self._records = records
        self._clock = clock
        self._looked_s = clock.now_s()
        self._round = 0
        self._settle = settle
        self._tally = Tally()
        self._board = RecordBoard()

    def count(self, records: Iterable[MatchRecord]) -> None:
        """These jobs are over."""
        now_s, unix_s = self._clock.now_s(), self._clock.unix_s()
        note_job, note = self._tally.note_job, self._board.note
        for record in records:
            note_job(record, now_s=now_s)
            note(record, unix_s=unix_s)

    @property
    def tally(self) -> Tally:
        """With all that is over by now."""
        self._settle()
        return self._tally

    @property
    def board(self) -> RecordBoard:
        """With all that is over by now."""
        self._settle()
        return self._board

    def first_tokens(self) -> tuple[float | None, int]:
        """The median of the last minutes, in milliseconds, and of how many."""
        return self.tally.first_tokens(now_s=self._clock.now_s())

    async def keep(self) -> None:
        """Called every STORE_S. Raises StoreUnavailable, with nothing lost."""
        self._look()
        self._round += 1
        await self._store_kinds(_ALL if self._round % NODES_EVERY == 0 else _OFTEN)
        await self._store_records()

    async def close(self) -> None:
        self._look()
        await self._store_kinds(_ALL)
        await self._store_records()

    def _look(self) -> None:
        now_s = self._clock.now_s()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if self._siblings is None:
            self.tally.note_time(self._table, passed_s=passed_s, unix_s=self._clock.unix_s())
        elif self._siblings.keeps_time:  # a minute that every process counted would be many
            is_there = self._siblings.has_link
            self.tally.note_time(self._table, passed_s=passed_s, unix_s=self._clock.unix_s(), is_elsewhere=is_there)

    async def _store_kinds(self, kinds: tuple[Kind, ...]) -> None:
        taken = self.tally.take(kinds)
        try:
            await self._store.add(taken, unix_s=self._clock.unix_s())
        except BaseException:
            self.tally.give_back(taken)
            raise

    async def _store_records(self) -> None:
        """Only of nodes that had jobs: few enough for every round."""
        taken = self.board.take()
        try:
            if taken:
                await self._records.add(taken)
        except BaseException:
            self.board.give_back(taken)
            raise
