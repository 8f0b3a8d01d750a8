"""The ledger of one gateway: opens and closes jobs in memory and journal, and brings them to Postgres afterwards.

1 a hold is taken from the account's purse → 2 the job is journalled, and may then be sent → 3 it closes: billed, its
hold settled, journalled → 4 within a second it is posted, once. Steps 1 to 3 never wait for the database; only an
account that is new here does, or one that runs through its slice before the next is there, which is asked for in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InternalError, StoreUnavailable, UnbalancedEntry
from sparewatt.core.ids import AccountId, MatchId
from sparewatt.core.limits import JOBS_POSTED_AT_ONCE, JOBS_TO_POST_MAX, PURSE_IDLE_S, PURSES_MAX
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.holds import Hold, Purse, slice_for
from sparewatt.ledger.job_rows import job_row
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
from sparewatt.ledger.rules import bill
from sparewatt.store.ledger import JobRow, LedgerStore

_log = Logger("sparewatt.ledger")
RETRY_AFTER_S = 5.0
REFILL_LOCKS = 256
"""Accounts share them, so that none has to be made or thrown away; two that wait for each other lose a millisecond."""


async def _no_siblings(_: AccountId) -> bool:
    return False


class SettledJob(msgspec.Struct, frozen=True, gc=False):
    """A job that waits to be posted."""

    closed: ClosedJob
    billed: Bill


class Ledger:
    def __init__(
        self,
        books: LedgerStore,
        journal: Journal,
        *,
        instance: str,
        clock: Clock,
        call_in: Callable[[AccountId], Awaitable[bool]] | None = None,
    ) -> None:
        """`call_in`: has the other processes of this gateway return credits they do not need; whether any did."""
        self._call_in = call_in or _no_siblings
        self._books = books
        self._journal = journal
        self._instance = instance
        self._clock = clock
        self._purses: dict[AccountId, Purse] = {}
        self._filling = tuple(asyncio.Lock() for _ in range(REFILL_LOCKS))
        self._running_low: dict[AccountId, Purse] = {}
        self._has_low = asyncio.Event()
        self._open: dict[MatchId, OpenedJob] = {}
        self._delivered: dict[MatchId, tuple[Delivery, ...]] = {}
        self._closed: deque[SettledJob] = deque()
        self._posting: list[SettledJob] = []
        self._flushing = asyncio.Lock()
        self._broken: str | None = None
        self.spent = ZERO_AMOUNT
        self.earned = ZERO_AMOUNT
        """Of what was posted from here: what payers paid, and what owners got of it."""

    @property
    def unposted(self) -> int:
        return len(self._closed) + len(self._posting)

    # holds

    def free_here(self, account: AccountId) -> Nano:
        purse = self._purses.get(account)
        return purse.free.total if purse else Nano(0)

    def try_hold(self, account: AccountId, nano: Nano) -> Hold | None:
        """Set money aside that is reserved here already. None if there is not that much."""
        purse = self._purses.get(account) or self._purse(account)
        held = purse.hold(nano, now_s=self._clock.now_s())
        if purse.refill_nano and purse.low_water_nano:
            self._running_low[account] = purse
            self._has_low.set()
        return held

    async def hold(self, account: AccountId, nano: Nano) -> Hold | None:
        """Set money aside. None if the account does not have that much. Waits for Postgres only if it must."""
        held = self.try_hold(account, nano) or await self._hold_after_refill(account, nano)
        if held is None and await self._call_in(account):
            held = await self._hold_after_refill(account, nano)
        return held

    async def _hold_after_refill(self, account: AccountId, nano: Nano) -> Hold | None:
        """Whoever is first has the purse filled for all that wait; or each would wait for the database, in turn."""
        purse = self._purse(account)
        purse.awaited_nano += nano  # from here on it is not put away
        try:
            async with self._refill_lock(account):
                held = self.try_hold(account, nano)
                if held is None:
                    await self._refill(purse, max(slice_for(nano), purse.awaited_nano))
                    held = self.try_hold(account, nano)
                return held
        finally:
            purse.awaited_nano -= nano

    async def reserve(self, account: AccountId, wanted_nano: int) -> Nano:
        """Have at least `wanted_nano` free here, if the account has it. Tells what is free now."""
        async with self._refill_lock(account):
            purse = self._purse(account)
            await self._refill(purse, wanted_nano)
            return purse.free.total

    async def _refill(self, purse: Purse, wanted_nano: int) -> None:
        """Up to what is wanted, or the slice that its account needs by now."""
        account, now_s = purse.account, self._clock.now_s
        purse.begin_refill(now_s=now_s())
        liked_nano = max(wanted_nano, purse.slice_nano)
        free = purse.free.total
        if free < liked_nano:
            name, have = chart.promo_of(account), purse.reserved.promo
            purse.add_slice(
                Amount(promo=await self._take(name, wanted_nano - free, have=have, preferred=liked_nano - free))
            )
            free = purse.free.total
        if free < wanted_nano or (free < liked_nano and not purse.free_promo):
            name, have = chart.credits_of(account), purse.reserved.paid
            purse.add_slice(
                Amount(paid=await self._take(name, wanted_nano - free, have=have, preferred=liked_nano - free))
            )
        purse.end_refill(is_full=purse.free.total >= wanted_nano, now_s=now_s())

    async def refill_low_purses(self) -> None:
        """Wait until half of somebody's slice is gone, and reserve the next before a request has to wait for it."""
        await self._has_low.wait()
        self._has_low.clear()
        low, self._running_low = self._running_low, {}
        for account, purse in low.items():
            if purse.refill_nano:
                await self.reserve(account, purse.refill_nano)

    async def give_back(self, account: AccountId) -> bool:
        """Return what is free of an account's money here: another process lacks it. Tells whether there was any."""
        async with self._refill_lock(account):
            purse = self._purses.get(account)
            if purse is None or not purse.give_back().total:
                return False
            await self._take(chart.promo_of(account), 0, have=purse.reserved.promo)
            await self._take(chart.credits_of(account), 0, have=purse.reserved.paid)
            return True

    def _refill_lock(self, account: AccountId) -> asyncio.Lock:
        """One purse is filled or emptied by one task at a time."""
        return self._filling[hash(account) % REFILL_LOCKS]

    async def _take(self, name: str, wanted: int, *, have: int, preferred: int = 0) -> Nano:
        return await self._books.take_slice(
            name, instance=self._instance, have=have, wanted=wanted, preferred=preferred
        )

    def _purse(self, account: AccountId) -> Purse:
        purse = self._purses.get(account)
        if purse is None:
            if len(self._purses) >= PURSES_MAX:
                raise StoreUnavailable("Too many accounts are active here. Try again.", retry_after_s=RETRY_AFTER_S)
            purse = self._purses[account] = Purse(account)
        return purse

    # jobs

    def open(self, job: OpenedJob) -> None:
        """From here on the job will be settled, whatever happens. Raises when it cannot be: then it must not start."""
        if self._broken is not None:
            raise InternalError("The books of this gateway are stopped because something in them is wrong.")
        if len(self._closed) + len(self._posting) >= JOBS_TO_POST_MAX:
            raise StoreUnavailable("The books are behind. Try again.", retry_after_s=RETRY_AFTER_S)
        try:
            self._journal.append(job)
        except OSError as error:
            _log.warning("journal_unwritable", error=error.strerror)
            raise StoreUnavailable(
                "This gateway cannot write its journal. Try again.", retry_after_s=RETRY_AFTER_S
            ) from None
        self._open[job.id] = job

    def close(self, closed: ClosedJob, hold: Hold, billed: Bill | None = None) -> Bill:
        """Settle what was delivered and free the rest. A second time changes nothing more.

        `billed` is its bill, where that is known already.
        """
        billed = billed or bill(closed.deliveries, closed.job.hold)
        job_id = closed.job.id
        if job_id not in self._open:
            return billed
        hold.settle(billed.cost)
        del self._open[job_id]
        self._delivered.pop(job_id, None)
        self._closed.append(SettledJob(closed, billed))
        self._journal.append_soon(closed)  # it is settled in memory; a crash before that settles its last known count
        return billed

    def note_progress(self, delivered: Mapping[MatchId, tuple[Delivery, ...]]) -> None:
        """What running jobs have delivered by now, as far as that is news."""
        news = {job_id: now for job_id, now in delivered.items() if job_id in self._open}
        if not news:
            return
        self._delivered |= news
        try:
            self._journal.append(DeliveryProgress(news))
        except OSError as error:
            _log.warning("journal_unwritable", error=error.strerror)

    # in the background

    async def flush(self) -> None:
        """Post all that is closed. What cannot be posted now is posted the next time."""
        async with self._flushing:  # a gateway that stops posts what is left while the chore may be at it
            while self._posting or self._closed:
                while self._closed and len(self._posting) < JOBS_POSTED_AT_ONCE:
                    self._posting.append(self._closed.popleft())
                await self._post()
            # Settled lines are of no use, and very old ones do harm: books that forgot a month cannot know them.
            if self._journal.needs_compaction or not self._open:
                self._compact_journal()

    async def _post(self) -> None:
        await self._books.post_jobs([self._row(settled) for settled in self._posting], instance=self._instance)
        posted, self._posting = self._posting, []
        self._note_posted(posted)

    def _row(self, settled: SettledJob) -> JobRow:
        """Raises UnbalancedEntry: then nothing is posted and nothing is opened any more, until a person has looked."""
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
        """A journal that cannot be rewritten stays as it was: longer, and no less right."""
        if self._journal.is_empty:
            return
        try:
            self._journal.compact(self._live_records())
        except OSError as error:
            _log.warning("journal_unwritable", error=error.strerror)

    def _live_records(self) -> list[JournalRecord]:
        settled = (each.closed for each in (*self._posting, *self._closed))
        kept: list[JournalRecord] = [*self._open.values(), *settled]
        return [*kept, DeliveryProgress(dict(self._delivered))] if self._delivered else kept

    async def rebalance_purses(self) -> None:
        """Reserve more for who will need it, give back what nobody uses."""
        now_s = self._clock.now_s()
        for purse in list(self._purses.values()):
            if purse.refill_nano:
                await self.reserve(purse.account, purse.refill_nano)
            elif purse.is_idle and now_s - purse.used_at_s > PURSE_IDLE_S:
                await self._return_purse(purse)

    async def _return_purse(self, purse: Purse) -> None:
        async with self._refill_lock(purse.account):
            if not purse.is_idle:
                return
            purse.give_back()  # for good: a reply that is lost on the way must not leave us with what others may have
            names = [chart.promo_of(purse.account), chart.credits_of(purse.account)]
            await self._books.return_slices(names, instance=self._instance)
            if purse.is_idle and purse.reserved == ZERO_AMOUNT:
                self._purses.pop(purse.account, None)

    async def recover(self, left: list[ClosedJob]) -> int:
        """Settle what a process that died with this journal had not. Tells how many jobs were new to the books."""
        settled = 0
        for at in range(0, len(left), JOBS_POSTED_AT_ONCE):
            rows = [job_row(closed) for closed in left[at : at + JOBS_POSTED_AT_ONCE]]
            settled += await self._books.post_jobs(rows, instance=self._instance)
        await self._books.drop_slices(self._instance)
        self._compact_journal()
        return settled

    async def close_down(self) -> bool:
        """Post everything, give everything back. Raises StoreUnavailable: then the journal has it.

        False if something still runs: then the journal is needed by whoever starts next.
        """
        await self.flush()
        if self._open:
            return False
        await self._books.drop_slices(self._instance)
        self._compact_journal()
        return True
