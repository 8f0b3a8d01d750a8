"""Pro-rata shares of a budget, its release over the day, and what is left of expired grants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import TRANSFER_NANO_MAX
from sparewatt.core.money import Nano
from sparewatt.ledger.credits import Balance, checked_transfer_nano
from sparewatt.ledger.rules import expired_promo, pro_rata_shares, treasury_allowance

A, B, C = AccountId("acc_a"), AccountId("acc_b"), AccountId("acc_c")
owed_by_owner = st.dictionaries(
    st.sampled_from([AccountId(f"acc_{i}") for i in range(12)]), st.integers(1, 10**15).map(Nano), max_size=12
)


@pytest.mark.parametrize(
    ("said", "owed", "budget", "expected"),
    [
        ("plenty: everybody gets all", {A: 30, B: 70}, 1_000, {A: 30, B: 70}),
        ("just enough", {A: 30, B: 70}, 100, {A: 30, B: 70}),
        ("half: in proportion", {A: 30, B: 70}, 50, {A: 15, B: 35}),
        ("what rounding leaves goes to who lost most by it", {A: 1, B: 2, C: 2}, 4, {A: 1, B: 2, C: 1}),
        ("then by name", {A: 1, B: 1, C: 1}, 2, {A: 1, B: 1}),
        ("one nano for many", {A: 5, B: 6}, 1, {B: 1}),
        ("nothing to share", {A: 5}, 0, {}),
        ("nobody is owed", {}, 10, {}),
    ],
)
def test_a_budget_is_shared(
    said: str, owed: dict[AccountId, Nano], budget: int, expected: dict[AccountId, int]
) -> None:
    assert pro_rata_shares(owed, budget) == expected, said


@given(owed=owed_by_owner, budget=st.integers(0, 10**16))
def test_shares_use_the_budget_up_and_give_none_more_than_is_owed(owed: dict[AccountId, Nano], budget: int) -> None:
    found = pro_rata_shares(owed, budget)
    total = sum(owed.values())
    assert sum(found.values()) == min(budget, total)
    assert all(0 < nano <= owed[owner] for owner, nano in found.items())
    for owner, nano in owed.items():
        assert abs(found.get(owner, 0) - nano * min(budget, total) / max(1, total)) <= 1 + nano * 1e-12


@given(owed=owed_by_owner, budget=st.integers(0, 10**16))
def test_the_order_in_which_owners_are_named_changes_nothing(owed: dict[AccountId, Nano], budget: int) -> None:
    assert pro_rata_shares(dict(reversed(owed.items())), budget) == pro_rata_shares(owed, budget)


@pytest.mark.parametrize(
    ("said", "day_part", "redeemed", "treasury", "expected"),
    [
        ("nothing at midnight", 0.0, 0, 1_000, 0),
        ("half at noon", 0.5, 0, 1_000, 50),
        ("less what is gone", 0.5, 20, 1_000, 30),
        ("never less than nothing", 0.1, 20, 1_000, 0),
        ("no more than there is", 1.0, 0, 7, 7),
        ("an empty treasury pays nothing", 1.0, 0, 0, 0),
        ("a clock that jumps", 1.7, 0, 1_000, 100),
    ],
)
def test_a_daily_budget_is_released_evenly_over_the_day(
    said: str, day_part: float, redeemed: int, treasury: int, expected: int
) -> None:
    found = treasury_allowance(daily=100, day_part=day_part, redeemed_today=redeemed, treasury=treasury)
    assert found == expected, said


def test_without_a_daily_budget_nothing_is_redeemed() -> None:
    assert treasury_allowance(daily=0, day_part=1.0, redeemed_today=0, treasury=10**9) == 0


@pytest.mark.parametrize(
    ("balance", "live", "expected"), [(100, [], 100), (100, [40], 60), (30, [40], 0), (100, [40, 60], 0)]
)
def test_the_oldest_credits_are_spent_first(balance: int, live: list[int], expected: int) -> None:
    assert expired_promo(balance, live) == expected


@pytest.mark.parametrize(
    ("nano", "why"), [(0, "more than"), (-1, "more than"), (TRANSFER_NANO_MAX + 1, "At most"), (10**30, "At most")]
)
def test_an_amount_that_cannot_be_moved_is_refused_with_the_reason(nano: int, why: str) -> None:
    with pytest.raises(InvalidField, match=why):
        checked_transfer_nano(nano)


@pytest.mark.parametrize("nano", [1, TRANSFER_NANO_MAX])
def test_an_amount_that_can_be_moved_is_taken(nano: int) -> None:
    assert checked_transfer_nano(nano) == nano


def test_a_balance_says_what_was_received_and_spent() -> None:
    zero, n = Nano(0), Nano
    balance = Balance(
        promo=n(10),
        paid=n(30),
        reserved=zero,
        granted=n(50),
        deposited=n(40),
        credited=n(4),
        expired=n(5),
        moved=n(7),
        promo_ends_unix_s=None,
    )
    assert (balance.total, balance.received, balance.spent) == (40, 82, 42)
    assert balance.received - balance.spent == balance.total, "as OpenRouter's clients reckon what is left"
