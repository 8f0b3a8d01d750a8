"""The ledger of one gateway process: holds, journal, posting once, and the return of slices."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparewatt.core.errors import DiskFull, InternalError, StoreUnavailable, UnbalancedEntry
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import journal as journal_module
from sparewatt.ledger import ledger as ledger_module
from sparewatt.ledger.holds import SLICE_NANO, Hold
from sparewatt.ledger.journal import Journal, read_journal, unsettled_jobs
from sparewatt.ledger.ledger import PURSE_IDLE_S, Ledger
from sparewatt.ledger.model import ZERO_AMOUNT, Bill, ClosedJob, JobState, OpenedJob
from sparewatt.testing.clocks import ManualClock
from tests.unit.ledger.books_suite import COST, CREDITS, PROMO, deposit, grant, nano_of
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import NOW_S, PAYER, amount, delivery, opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def books() -> MemoryBooks:
    books = MemoryBooks()
    await books.post_transfer(deposit("d", 4 * SLICE_NANO))
    return books


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


@pytest.fixture
def ledger(books: MemoryBooks, journal: Journal, clock: ManualClock) -> Ledger:
    return Ledger(books, journal, instance="a", clock=clock)


async def start(ledger: Ledger, name: str = "1", nano: int = 100_000) -> tuple[OpenedJob, Hold]:
    hold = await ledger.hold(PAYER, Nano(nano))
    assert hold is not None
    job = opened(name, hold=hold.amount)
    ledger.open(job)
    return job, hold


def end(ledger: Ledger, job: OpenedJob, hold: Hold) -> Bill:
    return ledger.close(ClosedJob(job, JobState.DONE, NOW_S, (delivery(),)), hold)


async def test_a_job_is_held_journalled_billed_and_posted_once(
    ledger: Ledger, books: MemoryBooks, tmp_path: Path
) -> None:
    job, hold = await start(ledger)
    assert list(read_journal(tmp_path)) == [job]
    for _ in range(2):
        assert end(ledger, job, hold).cost == amount(paid=COST)
        await ledger.flush()
    assert await nano_of(books, CREDITS) == 4 * SLICE_NANO - COST
    assert ledger.free_here(PAYER) == SLICE_NANO - COST == books.slices[CREDITS, "a"]
    assert list(read_journal(tmp_path)) == []


async def test_the_second_job_of_an_account_does_not_wait_for_postgres(ledger: Ledger, books: MemoryBooks) -> None:
    await start(ledger)
    books.is_away = True
    await start(ledger, "2")
    with pytest.raises(StoreUnavailable):
        await ledger.hold(PAYER, Nano(SLICE_NANO))


async def test_what_an_account_does_not_have_is_not_held(ledger: Ledger) -> None:
    assert await ledger.hold(PAYER, Nano(4 * SLICE_NANO + 1)) is None
    assert await ledger.hold(PAYER, Nano(4 * SLICE_NANO)) is not None


async def test_free_credits_are_reserved_first(ledger: Ledger, books: MemoryBooks) -> None:
    await books.post_transfer(grant("g", 30))
    hold = await ledger.hold(PAYER, Nano(100))
    assert hold is not None
    assert hold.amount == amount(promo=30, paid=70)
    assert books.slices == {(PROMO, "a"): 30, (CREDITS, "a"): SLICE_NANO - 30}


async def test_tasks_that_post_at_once_post_each_job_once(ledger: Ledger, books: MemoryBooks) -> None:
    jobs = [await start(ledger, str(n)) for n in range(4)]
    for job in jobs[:2]:
        end(ledger, *job)
    first = asyncio.create_task(ledger.flush())
    await asyncio.sleep(0)
    for job in jobs[2:]:
        end(ledger, *job)
    await asyncio.gather(first, ledger.flush(), ledger.flush())
    assert len(books.jobs) == 4
    assert ledger.unposted == 0
    assert ledger.free_here(PAYER) == SLICE_NANO - 4 * COST


async def test_a_batch_whose_reply_was_lost_is_posted_again_and_counted_once(
    ledger: Ledger, books: MemoryBooks
) -> None:
    end(ledger, *await start(ledger))
    books.loses_replies = True
    with pytest.raises(StoreUnavailable):
        await ledger.flush()
    assert ledger.unposted == 1
    await ledger.flush()
    assert ledger.unposted == 0
    assert await nano_of(books, CREDITS) == 4 * SLICE_NANO - COST
    assert ledger.free_here(PAYER) == SLICE_NANO - COST


async def test_an_idle_purse_is_given_back(ledger: Ledger, books: MemoryBooks, clock: ManualClock) -> None:
    end(ledger, *await start(ledger))
    await ledger.flush()
    await ledger.rebalance_purses()
    clock.advance(PURSE_IDLE_S + 1)
    assert books.slices
    await ledger.rebalance_purses()
    assert books.slices == {}
    assert ledger.free_here(PAYER) == 0


async def test_a_busy_purse_is_kept(ledger: Ledger, books: MemoryBooks, clock: ManualClock) -> None:
    await start(ledger)
    clock.advance(PURSE_IDLE_S + 1)
    await ledger.rebalance_purses()
    assert books.slices[CREDITS, "a"] == SLICE_NANO


async def test_a_purse_that_ran_low_for_a_moment_is_given_back_too(
    ledger: Ledger, books: MemoryBooks, clock: ManualClock
) -> None:
    hold = await ledger.hold(PAYER, Nano(SLICE_NANO - 1))
    assert hold is not None
    hold.release()
    for _ in range(2):
        clock.advance(PURSE_IDLE_S + 1)
        await ledger.rebalance_purses()
    assert books.slices == {}


async def test_a_purse_whose_return_was_not_confirmed_is_empty_and_returned_again(
    ledger: Ledger, books: MemoryBooks, clock: ManualClock
) -> None:
    (await start(ledger))[1].release()
    clock.advance(PURSE_IDLE_S + 1)
    books.loses_replies = True
    with pytest.raises(StoreUnavailable):
        await ledger.rebalance_purses()
    assert ledger.free_here(PAYER) == 0
    await books.take_slice(CREDITS, instance="b", have=0, wanted=4 * SLICE_NANO)
    assert await ledger.hold(PAYER, Nano(1)) is None


async def test_a_hold_that_comes_while_its_purse_is_returned_is_counted(
    ledger: Ledger, books: MemoryBooks, clock: ManualClock
) -> None:
    (await start(ledger))[1].release()
    clock.advance(PURSE_IDLE_S + 1)
    _, hold = await asyncio.gather(ledger.rebalance_purses(), ledger.hold(PAYER, Nano(100_000)))
    assert hold is not None
    job = opened("2", hold=hold.amount)
    ledger.open(job)
    end(ledger, job, hold)
    await ledger.flush()
    assert ledger.free_here(PAYER) == SLICE_NANO - COST == books.slices[CREDITS, "a"]


async def test_many_that_find_the_purse_empty_at_once_reserve_no_more_than_there_is(
    ledger: Ledger, books: MemoryBooks
) -> None:
    found = await asyncio.gather(*(ledger.hold(PAYER, Nano(SLICE_NANO)) for _ in range(6)))
    assert sum(hold is not None for hold in found) == 4
    assert books.slices[CREDITS, "a"] == 4 * SLICE_NANO


class CountedBooks(MemoryBooks):
    """Records the accounts of which a slice was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []

    async def take_slice(self, account: str, *, instance: str, have: int, wanted: int, preferred: int = 0) -> Nano:
        self.taken.append(account)
        return await super().take_slice(account, instance=instance, have=have, wanted=wanted, preferred=preferred)


@pytest.fixture
async def counted(journal: Journal, clock: ManualClock) -> tuple[CountedBooks, Ledger]:
    books = CountedBooks()
    await books.post_transfer(deposit("d", 100 * SLICE_NANO))
    return books, Ledger(books, journal, instance="a", clock=clock)


async def test_many_that_wait_for_one_purse_have_it_filled_together(counted: tuple[CountedBooks, Ledger]) -> None:
    books, ledger = counted
    found = await asyncio.gather(*(ledger.hold(PAYER, Nano(SLICE_NANO // 3)) for _ in range(30)))
    assert all(found)
    assert books.taken.count(CREDITS) == 2  # the first request does not know of the others


async def test_the_next_slice_is_there_before_the_last_is_used_up(counted: tuple[CountedBooks, Ledger]) -> None:
    books, ledger = counted
    assert await ledger.hold(PAYER, Nano(1)) is not None
    filling = asyncio.create_task(ledger.refill_low_purses())
    await asyncio.sleep(0)
    assert not filling.done()
    for _ in range(2):
        assert ledger.try_hold(PAYER, Nano(SLICE_NANO // 4)) is not None
    await asyncio.wait_for(filling, 5)
    assert ledger.free_here(PAYER) == 2 * SLICE_NANO  # it went within a moment, so the next is larger
    assert books.taken.count(CREDITS) == 2


async def test_a_purse_that_cannot_be_filled_in_time_is_filled_when_a_request_waits(
    counted: tuple[CountedBooks, Ledger],
) -> None:
    books, ledger = counted
    assert await ledger.hold(PAYER, Nano(SLICE_NANO // 8)) is not None
    assert ledger.try_hold(PAYER, Nano(SLICE_NANO // 2)) is not None
    books.is_away = True
    with pytest.raises(StoreUnavailable):
        await ledger.refill_low_purses()
    assert ledger.try_hold(PAYER, Nano(SLICE_NANO // 8)) is not None
    again = asyncio.create_task(ledger.refill_low_purses())
    await asyncio.sleep(0)
    assert not again.done()  # Postgres is not queried again and again
    again.cancel()
    books.is_away = False
    assert await ledger.hold(PAYER, Nano(SLICE_NANO)) is not None


async def test_a_purse_is_not_returned_while_a_request_waits_for_it(
    ledger: Ledger, books: MemoryBooks, clock: ManualClock
) -> None:
    (await start(ledger))[1].release()
    clock.advance(PURSE_IDLE_S + 1)
    waiting = asyncio.create_task(ledger.hold(PAYER, Nano(2 * SLICE_NANO)))
    await asyncio.sleep(0)
    await ledger.rebalance_purses()
    assert await waiting is not None
    assert books.slices[CREDITS, "a"] == 4 * SLICE_NANO


async def test_a_request_that_is_cancelled_while_it_waits_holds_nothing(ledger: Ledger, books: MemoryBooks) -> None:
    waiting = asyncio.create_task(ledger.hold(PAYER, Nano(5)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await ledger.hold(PAYER, Nano(4 * SLICE_NANO)) is not None


# when it cannot go on


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, "disk_full", "disk of this gateway is full"),
        (errno.EIO, "store_unavailable", "cannot write its journal"),
    ],
)
async def test_a_job_is_not_started_when_the_journal_takes_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int, code: str, words: str
) -> None:
    hold = await ledger.hold(PAYER, Nano(5))
    assert hold is not None
    monkeypatch.setattr(ledger.journal, "append", failing(number))
    with pytest.raises(StoreUnavailable, match=words) as refused:
        ledger.open(opened(hold=hold.amount))
    assert refused.value.code == code


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


async def test_a_job_that_ends_on_a_full_disk_is_journalled_and_posted(
    ledger: Ledger, books: MemoryBooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, hold = await start(ledger)
    monkeypatch.setattr(journal_module, "reserve_space", failing(errno.ENOSPC))
    monkeypatch.setattr(journal_module, "free_bytes", lambda _path: 0)
    ledger.note_complete(job.id, (delivery(),))
    end(ledger, job, hold)
    (left,) = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
    assert (left.state, left.deliveries) == (JobState.DONE, (delivery(),))
    ledger.journal.check()
    with pytest.raises(DiskFull):
        ledger.open(opened("2"))
    await ledger.flush()
    assert len(books.jobs) == 1


async def test_a_job_that_ends_on_a_broken_disk_is_still_posted(
    ledger: Ledger, books: MemoryBooks, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, hold = await start(ledger)
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))
    monkeypatch.setattr(journal, "compact", failing(errno.EIO))
    end(ledger, job, hold)
    with pytest.raises(StoreUnavailable, match="journal"):
        ledger.open(opened("2"))
    await ledger.flush()
    assert len(books.jobs) == 1


async def test_a_whole_answer_is_settled_whole_if_the_process_dies_before_it_is_closed(
    ledger: Ledger, tmp_path: Path
) -> None:
    job, _ = await start(ledger)
    ledger.note_progress({job.id: (delivery(3, 1),)})
    ledger.note_complete(job.id, (delivery(3, 9),))
    (left,) = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
    assert left.deliveries == (delivery(3, 9),)


async def test_an_answer_that_cannot_be_journalled_is_an_error(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, _ = await start(ledger)
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))
    with pytest.raises(StoreUnavailable, match="cannot write its journal"):
        ledger.note_complete(job.id, (delivery(),))
    ledger.note_complete(opened("unknown").id, (delivery(),))
    assert list(read_journal(tmp_path)) == [job]


async def test_no_job_is_started_while_the_books_are_far_behind(
    ledger: Ledger, books: MemoryBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "UNPOSTED_JOBS_MAX", 1)
    end(ledger, *await start(ledger))
    with pytest.raises(StoreUnavailable, match="behind"):
        ledger.open(opened("2"))
    await ledger.flush()
    ledger.open(opened("2"))


async def test_an_entry_that_does_not_balance_stops_the_books_and_nothing_is_posted(
    ledger: Ledger, books: MemoryBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unbalanced(*_: object) -> None:
        raise UnbalancedEntry("1 in, 0 out")

    end(ledger, *await start(ledger))
    job, hold = await start(ledger, "wrong")
    end(ledger, job, hold)
    monkeypatch.setattr(ledger_module, "job_row", unbalanced)
    for _ in range(2):
        with pytest.raises(UnbalancedEntry):
            await ledger.flush()
    assert books.jobs == {}
    with pytest.raises(InternalError):
        ledger.open(opened("2"))


async def test_a_bill_beyond_its_hold_changes_nothing(ledger: Ledger) -> None:
    job, hold = await start(ledger)
    hold.amount = ZERO_AMOUNT
    with pytest.raises(ValueError, match="more than was held"):
        end(ledger, job, hold)
    hold.amount = job.hold
    assert end(ledger, job, hold).cost == amount(paid=COST)


# the journal, and coming back


async def test_a_long_journal_keeps_what_is_open_and_what_is_not_posted(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_AT_BYTES", 1)
    job, _ = await start(ledger)
    ledger.note_progress({job.id: (delivery(1, 2),)})
    end(ledger, *await start(ledger, "2"))
    await ledger.flush()
    (cut,) = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
    assert (cut.job, cut.deliveries) == (job, (delivery(1, 2),))


async def test_progress_of_a_closed_job_is_not_journalled(ledger: Ledger, tmp_path: Path) -> None:
    job, hold = await start(ledger)
    end(ledger, job, hold)
    before = list(read_journal(tmp_path))
    ledger.note_progress({job.id: (delivery(1, 2),)})
    assert list(read_journal(tmp_path)) == before


async def test_what_a_dead_process_left_is_settled_once_and_its_slices_are_free(
    ledger: Ledger, books: MemoryBooks, tmp_path: Path, clock: ManualClock
) -> None:
    end(ledger, *await start(ledger))
    job, _ = await start(ledger, "2")
    ledger.note_progress({job.id: (delivery(0, 1),)})
    for settled in (2, 0):
        left = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
        again = Journal(tmp_path)
        reborn = Ledger(books, again, instance="a", clock=clock)
        assert await reborn.recover(left) == settled
        again.close()
    assert await nano_of(books, CREDITS) == 4 * SLICE_NANO - COST - 40
    assert books.slices == {}
    assert {row.id: row.state for row in books.jobs.values()} == {"match_1": "done", "match_2": "failed"}


async def test_closing_down_posts_everything_and_keeps_the_journal_of_what_still_runs(
    ledger: Ledger, books: MemoryBooks, tmp_path: Path
) -> None:
    job, hold = await start(ledger)
    await ledger.close_down()
    assert list(read_journal(tmp_path)) == [job]
    assert books.slices
    end(ledger, job, hold)
    await ledger.close_down()
    assert list(read_journal(tmp_path)) == []
    assert books.slices == {}


async def test_what_is_free_at_one_process_can_be_reclaimed_by_another(
    ledger: Ledger, books: MemoryBooks, tmp_path: Path, clock: ManualClock
) -> None:
    other = Ledger(books, Journal(tmp_path), instance="b", clock=clock)
    _, hold = await start(ledger, nano=4 * SLICE_NANO)
    hold.release()
    assert await other.hold(PAYER, Nano(1)) is None  # all of it is reserved by the first
    other = Ledger(books, Journal(tmp_path), instance="b", clock=clock, reclaim=ledger.give_back)
    assert await other.hold(PAYER, Nano(3 * SLICE_NANO)) is not None
    assert ledger.free_here(PAYER) == 0
    assert books.slices[CREDITS, "b"] + books.slices.get((CREDITS, "a"), 0) == 4 * SLICE_NANO


async def test_what_is_held_or_spent_is_not_given_back(ledger: Ledger, books: MemoryBooks) -> None:
    await start(ledger, nano=100_000)
    assert await ledger.give_back(PAYER)
    assert books.slices[CREDITS, "a"] == 100_000
    assert not await ledger.give_back(PAYER)
    assert not await ledger.give_back(AccountId("acc_stranger"))


async def test_what_is_free_of_an_account_that_leaves_goes_back_however_busy_it_is(
    ledger: Ledger, books: MemoryBooks
) -> None:
    """The lie: a request a minute keeps a large slice here, until the chain has paid all of it out."""
    _, hold = await start(ledger, nano=100_000)
    books.leaving = [AccountId("acc_stranger"), PAYER]
    await ledger.rebalance_purses()
    assert books.slices[CREDITS, "a"] == 100_000  # of the request that runs
    hold.release()
    await ledger.rebalance_purses()
    assert books.slices.get((CREDITS, "a"), 0) == 0
