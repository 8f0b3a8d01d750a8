"""Books behind a bad line, and a journal on a bad disk."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.money import Nano
from sparewatt.ledger.journal import Journal
from sparewatt.ledger.model import JournalRecord, OpenedJob
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.ledger import JobRow, LedgerStore, ReceiptRow

FAULTS = 0.05
_T = TypeVar("_T")


class ChaoticBooks(LedgerStore):
    """Real books behind a bad line: away for a while, or a reply is lost after the change was made."""

    def __init__(self, pool: ConnectionPool, rng: random.Random, counts: Counter[str]) -> None:
        super().__init__(pool)
        self._rng = rng
        self._counts = counts
        self.is_away = False
        self.is_calm = False

    async def _over_the_line(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        if self.is_away and not self.is_calm:
            raise StoreUnavailable("away")
        answer = await ask()
        if not self.is_calm and self._rng.random() < FAULTS:
            self._counts["replies lost"] += 1
            raise StoreUnavailable("the reply was lost")
        return answer

    async def post_jobs(self, jobs: Any, *, instance: str) -> int:
        rows: list[JobRow] = list(jobs)
        return await self._over_the_line(lambda: super(ChaoticBooks, self).post_jobs(rows, instance=instance))

    async def save_receipts(self, receipts: Any) -> None:
        rows: list[ReceiptRow] = list(receipts)
        await self._over_the_line(lambda: super(ChaoticBooks, self).save_receipts(rows))

    async def take_slice(self, account: str, *, instance: str, have: int, wanted: int, preferred: int = 0) -> Nano:
        take = super().take_slice
        return await self._over_the_line(
            lambda: take(account, instance=instance, have=have, wanted=wanted, preferred=preferred)
        )

    async def return_slices(self, accounts: Any, *, instance: str) -> None:
        give = super().return_slices
        await self._over_the_line(lambda: give(accounts, instance=instance))


class ChaoticJournal(Journal):
    is_full = False

    def append(self, record: JournalRecord) -> None:
        if self.is_full and isinstance(record, OpenedJob):
            raise OSError(28, "No space left on device")
        super().append(record)

    def append_soon(self, record: JournalRecord) -> None:
        """What waits for a full disk is lost with its process."""
        if not self.is_full:
            super().append_soon(record)
