"""The ledger of one gateway process: opens and closes jobs in memory and journal, and posts them to Postgres later.

1 A hold is taken from the account's purse. 2 The job is journalled, and may then be sent. 3 It closes: it is billed,
its hold is settled, and that is journalled. 4 Within a second it is posted, once. Steps 1 to 3 wait for the database
only if the account is new here, or spends its slice faster than the next can be reserved.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import DiskFull, InternalError, StoreUnavailable, UnbalancedEntry
from sparewatt.core.ids import AccountId, MatchId
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.holds import Hold, Purse, slice_for
from sparewatt.ledger.journal import Journal
from sparewatt.ledger.model import (
    ZERO_AMOUNT,
    Amount,
    Bill,
    ClosedJob,
    Delivery,
    DeliveryProgress,
    JournalRecord,
    OpenedJob,
)
from sparewatt.ledger.rules import bill, job_row
from sparewatt.machine.disk import is_disk_full
from sparewatt.store.ledger import JobRow, LedgerStore

_log = Logger("sparewatt.ledger")
RETRY_AFTER_S = 5.0
UNPOSTED_JOBS_MAX = 100_000
"""Settled jobs that wait for Postgres (about 1 kB each). Beyond that, new jobs are refused."""
JOBS_PER_POST = 500
"""Jobs in one transaction: a few milliseconds of Postgres."""
PURSES_MAX = 100_000
"""Accounts that spend at one gateway process at a time (about 500 bytes each)."""
PURSE_IDLE_S = 60.0
"""After this long without a job, an account's slice is returned."""
REFILL_LOCKS = 256
"""Accounts share them by hash, so that none has to be created or dropped; a collision costs a millisecond."""


class SettledJob(msgspec.Struct, frozen=True, gc=False):
    """A closed job that is not posted yet."""

    closed: ClosedJob
    billed: Bill


@dataclass(slots=True, eq=False)
class Ledger:
    books: LedgerStore
    journal: Journal
    instance: str
    clock: Clock
    reclaim: Callable[[AccountId], Awaitable[bool]] | None = None
    """Makes the other processes of this gateway return what is free of an account. Returns whether any did."""
    spent: Amount = field(default=ZERO_AMOUNT, init=False)
    earned: Amount = field(default=ZERO_AMOUNT, init=False)
    """Of what this process posted: what payers paid, and what owners got of it."""
    _purses: dict[AccountId, Purse] = field(default_factory=dict, init=False)
    _refill_locks: tuple[asyncio.Lock, ...] = field(
        default_factory=lambda: tuple(asyncio.Lock() for _ in range(REFILL_LOCKS)), init=False
    )
    _running_low: dict[AccountId, Purse] = field(default_factory=dict, init=False)
    _has_low: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _open: dict[MatchId, OpenedJob] = field(default_factory=dict, init=False)
    _delivered: dict[MatchId, tuple[Delivery, ...]] = field(default_factory=dict, init=False)
    _closed: deque[SettledJob] = field(default_factory=deque, init=False)
    _posting: list[SettledJob] = field(default_factory=list, init=False)
    _flushing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _broken: str | None = field(default=None, init=False)

    @property
    def unposted(self) -> int:
        return len(self._closed) + len(self._posting)

    # holds

    def free_here(self, account: AccountId) -> Nano:
        purse = self._purses.get(account)
        return purse.free.total if purse else Nano(0)

    def try_hold(self, account: AccountId, nano: Nano) -> Hold | None:
        """Set money aside without waiting. None if this process has not reserved that much."""
        purse = self._purses.get(account) or self._purse(account)
        hold = purse.hold(nano, now_s=self.clock.now_s())
        if purse.refill_nano and purse.low_water_nano:
            self._running_low[account] = purse
            self._has_low.set()
        return hold

    async def hold(self, account: AccountId, nano: Nano) -> Hold | None:
        """Set money aside, waiting for Postgres if needed. None if the account does not have that much."""
        hold = self.try_hold(account, nano) or await self._hold_after_refill(account, nano)
        if hold is None and self.reclaim is not None and await self.reclaim(account):
            hold = await self._hold_after_refill(account, nano)
        return hold

    async def _hold_after_refill(self, account: AccountId, nano: Nano) -> Hold | None:
        """The first request refills the purse for all that wait, so that each round trip serves many."""
        purse = self._purse(account)
        purse.awaited_nano += nano  # from here on the purse is not idle, and stays
        try:
            async with self._refill_lock(account):
                hold = self.try_hold(account, nano)
                if hold is None:
                    await self._refill(purse, max(slice_for(nano), purse.awaited_nano))
                    hold = self.try_hold(account, nano)
                return hold
        finally:
            purse.awaited_nano -= nano

    async def reserve(self, account: AccountId, wanted_nano: int) -> Nano:
        """Have at least `wanted_nano` free here, if the account has it. Returns what is free now."""
        async with self._refill_lock(account):
            purse = self._purse(account)
            await self._refill(purse, wanted_nano)
            return purse.free.total

    async def _refill(self, purse: Purse, wanted_nano: int) -> None:
        """Reserve what is wanted, and up to a whole slice: promo credits first, paid ones once these are used up."""
        account = purse.account
        purse.begin_refill(now_s=self.clock.now_s())
        preferred_nano = max(wanted_nano, purse.slice_nano)
        free = purse.free.total
        if free < preferred_nano:
            promo = await self._take_slice(
                chart.promo_of(account), purse.reserved.promo, wanted_nano - free, preferred=preferred_nano - free
            )
            purse.add_slice(Amount(promo=promo))
            free = purse.free.total
        if free < wanted_nano or (free < preferred_nano and not purse.free_promo):
            paid = await self._take_slice(
                chart.credits_of(account), purse.reserved.paid, wanted_nano - free, preferred=preferred_nano - free
            )
            purse.add_slice(Amount(paid=paid))
        purse.end_refill(is_full=purse.free.total >= wanted_nano, now_s=self.clock.now_s())

    async def refill_low_purses(self) -> None:
        """Wait until a purse is below its low-water mark, and refill it before a request has to wait for that."""
        await self._has_low.wait()
        self._has_low.clear()
        low, self._running_low = self._running_low, {}
        for account, purse in low.items():
            if purse.refill_nano:
                await self.reserve(account, purse.refill_nano)

    async def give_back(self, account: AccountId) -> bool:
        """Return the free part of an account's slice, which another process needs. Returns whether there was any."""
        async with self._refill_lock(account):
            purse = self._purses.get(account)
            if purse is None or not purse.give_back().total:
                return False
            await self._take_slice(chart.promo_of(account), purse.reserved.promo, 0)
            await self._take_slice(chart.credits_of(account), purse.reserved.paid, 0)
            return True

    async def free_idle_slices(self, account: AccountId) -> None:
        """Return what no request needs of the account's slices, here and in the other processes."""
        await self.give_back(account)
        if self.reclaim is not None:
            await self.reclaim(account)

    def _refill_lock(self, account: AccountId) -> asyncio.Lock:
        """One task at a time refills or empties a purse."""
        return self._refill_locks[hash(account) % REFILL_LOCKS]

    async def _take_slice(self, name: str, have: int, wanted: int, *, preferred: int = 0) -> Nano:
        return await self.books.take_slice(name, instance=self.instance, have=have, wanted=wanted, preferred=preferred)

    def _purse(self, account: AccountId) -> Purse:
        purse = self._purses.get(account)
        if purse is None:
            if len(self._purses) >= PURSES_MAX:
                raise StoreUnavailable("Too many accounts are active here. Try again.", retry_after_s=RETRY_AFTER_S)
            purse = self._purses[account] = Purse(account)
        return purse

    # jobs

    def open(self, job: OpenedJob) -> None:
        """From here on the job will be settled, whatever crashes. If this raises, the job must not start."""
        if self._broken is not None:
            raise InternalError("The books of this gateway are stopped because something in them is wrong.")
        if len(self._closed) + len(self._posting) >= UNPOSTED_JOBS_MAX:
            raise StoreUnavailable("The books are behind. Try again.", retry_after_s=RETRY_AFTER_S)
        try:
            self.journal.append(job)
        except OSError as error:
            raise _journal_error(error) from None
        self._open[job.id] = job

    def close(self, closed: ClosedJob, hold: Hold, billed: Bill | None = None) -> Bill:
        """Settle the hold with what was delivered. A second time changes nothing.

        `billed` is the job's bill if it is known already.
        """
        billed = billed or bill(closed.deliveries, closed.job.hold)
        job_id = closed.job.id
        if job_id not in self._open:
            return billed
        hold.settle(billed.cost)
        del self._open[job_id]
        self._delivered.pop(job_id, None)
        self._closed.append(SettledJob(closed, billed))
        self.journal.append_soon(closed)  # after a crash before this write, its last progress is settled instead
        return billed

    def note_progress(self, delivered: Mapping[MatchId, tuple[Delivery, ...]]) -> None:
        """Journal what open jobs have delivered by now.

        If there is no room, a crash settles them at what was noted before.
        """
        progress = {job_id: now for job_id, now in delivered.items() if job_id in self._open}
        if progress:
            self._delivered |= progress
            with suppress(OSError):
                self.journal.append(DeliveryProgress(progress))

    def note_complete(self, job_id: MatchId, deliveries: tuple[Delivery, ...]) -> None:
        """Journal a whole answer before its client has the end of it. If this raises, the client must not get it."""
        if job_id not in self._open:
            return
        self._delivered[job_id] = deliveries
        try:
            self.journal.append_final(DeliveryProgress({job_id: deliveries}))
        except OSError as error:
            raise _journal_error(error) from None

    # in the background

    async def flush(self) -> None:
        """Post all closed jobs. What cannot be posted now is posted the next time."""
        async with self._flushing:  # `close_down` may call it while the chore runs
            while self._posting or self._closed:
                while self._closed and len(self._posting) < JOBS_PER_POST:
                    self._posting.append(self._closed.popleft())
                await self._post()
            # Posted records are useless, and harmful when old: a job of a dropped month would look like a new one.
            if self.journal.needs_compaction or not self._open:
                self._compact_journal()

    async def _post(self) -> None:
        await self.books.post_jobs([self._row(settled) for settled in self._posting], instance=self.instance)
        posted, self._posting = self._posting, []
        self._note_posted(posted)

    def _row(self, settled: SettledJob) -> JobRow:
        """Raises UnbalancedEntry: then nothing is posted or opened any more, until a person has looked into it."""
        try:
            return job_row(settled.closed, settled.billed)
        except UnbalancedEntry as error:
            if self._broken is None:
                _log.crash("books_stopped", error, job=settled.closed.job.id)
            self._broken = "unbalanced"
            raise

    def _note_posted(self, posted: Sequence[SettledJob]) -> None:
        promo = paid = net_promo = net_paid = 0
        for each in posted:
            cost = each.billed.cost
            promo += cost.promo
            paid += cost.paid
            purse = self._purses.get(each.closed.job.account)
            if purse is not None:
                purse.mark_posted(cost)
            for part in each.billed.splits:
                net_promo += part.net_promo
                net_paid += part.net_paid
        self.spent += Amount(Nano(promo), Nano(paid))
        self.earned += Amount(Nano(net_promo), Nano(net_paid))

    def _compact_journal(self) -> None:
        """If the journal cannot be rewritten it stays as it was: longer, and still right."""
        if self.journal.is_empty:
            return
        with suppress(OSError):
            self.journal.compact(self._live_records())

    def _live_records(self) -> list[JournalRecord]:
        settled = (each.closed for each in (*self._posting, *self._closed))
        records: list[JournalRecord] = [*self._open.values(), *settled]
        return [*records, DeliveryProgress(dict(self._delivered))] if self._delivered else records

    async def rebalance_purses(self) -> None:
        """Refill purses that run low, return those that are idle, and what is free of accounts that leave."""
        for account in await self.books.list_leaving():
            await self.give_back(account)
        now_s = self.clock.now_s()
        for purse in list(self._purses.values()):
            if purse.refill_nano:
                await self.reserve(purse.account, purse.refill_nano)
            elif purse.is_idle and now_s - purse.used_at_s > PURSE_IDLE_S:
                await self._return_purse(purse)

    async def _return_purse(self, purse: Purse) -> None:
        async with self._refill_lock(purse.account):
            if not purse.is_idle:
                return
            purse.give_back()  # even if the reply is lost: others may have the money by then
            names = [chart.promo_of(purse.account), chart.credits_of(purse.account)]
            await self.books.return_slices(names, instance=self.instance)
            if purse.is_idle and purse.reserved == ZERO_AMOUNT:
                self._purses.pop(purse.account, None)

    async def recover(self, left: list[ClosedJob]) -> int:
        """Post what a dead process left in this journal. Returns how many jobs were new to Postgres."""
        settled = 0
        for at in range(0, len(left), JOBS_PER_POST):
            rows = [job_row(closed) for closed in left[at : at + JOBS_PER_POST]]
            settled += await self.books.post_jobs(rows, instance=self.instance)
        await self.books.drop_slices(self.instance)
        self._compact_journal()
        return settled

    async def close_down(self) -> bool:
        """Post everything and return all slices. Raises StoreUnavailable: then the journal has it.

        False if a job still runs: then the next process needs the journal.
        """
        await self.flush()
        if self._open:
            return False
        await self.books.drop_slices(self.instance)
        self._compact_journal()
        return True


def _journal_error(error: OSError) -> StoreUnavailable:
    if is_disk_full(error):
        return DiskFull(
            "The disk of this gateway is full: it takes no new requests until there is room. Try again later.",
            retry_after_s=RETRY_AFTER_S,
        )
    return StoreUnavailable("This gateway cannot write its journal. Try again later.", retry_after_s=RETRY_AFTER_S)
