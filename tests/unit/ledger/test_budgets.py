"""What a key may spend per day, week or month."""

from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import KeyId
from sparewatt.core.money import Nano
from sparewatt.ledger.budgets import POSTED_WITHIN_S, RELOAD_S, KeyBudget, KeyBudgets, period_start
from sparewatt.store.database import BudgetPeriod
from sparewatt.testing.clocks import ManualClock
from tests.unit.ledger.books_suite import COST, job
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import KEY

DAY_S = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def books() -> MemoryBooks:
    return MemoryBooks()


@pytest.fixture
def budgets(books: MemoryBooks, clock: ManualClock) -> KeyBudgets:
    return KeyBudgets(books, clock=clock)


def budget(nano: int, period: BudgetPeriod = "day") -> KeyBudget:
    return KeyBudget(Nano(nano), period)


async def may_spend(budgets: KeyBudgets, limit: KeyBudget | None) -> bool:
    left = await budgets.remaining(KEY, limit)
    return left is None or left > 0


@pytest.mark.parametrize(("period", "start"), [("day", "2024-02-29"), ("week", "2024-02-26"), ("month", "2024-02-01")])
def test_periods_begin_at_midnight_utc(period: BudgetPeriod, start: str) -> None:
    late = dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=dt.UTC).timestamp()
    assert period_start(period, late) == dt.datetime.fromisoformat(f"{start}T00:00:00+00:00").timestamp()


async def test_a_key_without_a_budget_is_not_looked_up(budgets: KeyBudgets, books: MemoryBooks) -> None:
    books.is_away = True
    assert await may_spend(budgets, None)


async def test_a_budget_of_zero_allows_nothing(budgets: KeyBudgets) -> None:
    assert not await may_spend(budgets, budget(0))
    assert await may_spend(budgets, budget(1))


async def test_what_was_settled_counts_at_once(budgets: KeyBudgets) -> None:
    assert await may_spend(budgets, budget(100))
    budgets.release(KEY, 0, spent=60)
    assert await may_spend(budgets, budget(100))
    budgets.release(KEY, 0, spent=40)
    assert not await may_spend(budgets, budget(100))


async def test_what_running_requests_hold_counts_until_they_are_over(budgets: KeyBudgets) -> None:
    budgets.hold(KEY, 70)
    budgets.hold(KEY, 30)
    assert await budgets.remaining(KEY, budget(100)) == 0
    budgets.release(KEY, 70, spent=10)
    assert await budgets.remaining(KEY, budget(100)) == 60
    budgets.release(KEY, 30, spent=0)
    assert await budgets.remaining(KEY, budget(100)) == 90


async def test_what_other_gateways_posted_counts_after_a_while(
    budgets: KeyBudgets, books: MemoryBooks, clock: ManualClock
) -> None:
    assert await may_spend(budgets, budget(COST))
    await books.post_jobs([job("1", opened_unix_s=clock.unix_s())], instance="b")
    assert await may_spend(budgets, budget(COST))
    clock.advance(RELOAD_S + 1)
    assert not await may_spend(budgets, budget(COST))


async def test_what_is_not_posted_yet_survives_a_reload(budgets: KeyBudgets, clock: ManualClock) -> None:
    assert await may_spend(budgets, budget(100))
    clock.advance(RELOAD_S + 1)
    budgets.release(KEY, 0, spent=100)
    assert not await may_spend(budgets, budget(100))


async def test_what_was_posted_is_counted_once_in_the_end(
    budgets: KeyBudgets, books: MemoryBooks, clock: ManualClock
) -> None:
    assert await may_spend(budgets, budget(2 * COST))
    budgets.release(KEY, 0, spent=COST)
    await books.post_jobs([job("1", opened_unix_s=clock.unix_s())], instance="a")
    clock.advance(max(RELOAD_S, POSTED_WITHIN_S) + 1)
    assert await may_spend(budgets, budget(COST + 1))


async def test_a_new_period_begins_at_zero(budgets: KeyBudgets, books: MemoryBooks, clock: ManualClock) -> None:
    await books.post_jobs([job("1", opened_unix_s=clock.unix_s())], instance="a")
    assert not await may_spend(budgets, budget(COST))
    clock.advance(DAY_S)
    assert await may_spend(budgets, budget(COST))
    assert not await may_spend(budgets, budget(COST, "month"))


async def test_a_known_budget_works_while_postgres_is_away(
    budgets: KeyBudgets, books: MemoryBooks, clock: ManualClock
) -> None:
    assert await may_spend(budgets, budget(100))
    books.is_away = True
    clock.advance(RELOAD_S + 1)
    assert await may_spend(budgets, budget(100))
    budgets.release(KEY, 0, spent=100)
    assert not await may_spend(budgets, budget(100))
    clock.advance(DAY_S)
    with pytest.raises(StoreUnavailable):
        await budgets.remaining(KEY, budget(100))


async def test_what_other_processes_hold_and_just_spent_counts(books: MemoryBooks, clock: ManualClock) -> None:
    budgets = KeyBudgets(books, clock=clock, pending_at_peers=lambda key: 30 if key == KEY else 0)
    assert await budgets.remaining(KEY, budget(100)) == 70


async def test_pending_spending_is_reported_for_keys_with_a_budget(budgets: KeyBudgets) -> None:
    budgets.hold(KeyId("key_without"), 5)
    await budgets.remaining(KEY, budget(100))
    assert budgets.pending() == {}
    budgets.hold(KEY, 40)
    budgets.hold(KEY, 10)
    budgets.release(KEY, 10, spent=7)
    assert budgets.pending() == {KEY: 47}
