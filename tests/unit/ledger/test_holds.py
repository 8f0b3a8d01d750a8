"""A purse never spends what it does not have; a hold is settled once."""

from __future__ import annotations

import pytest

from sparewatt.core.money import Nano
from sparewatt.ledger.holds import SLICE_HOLDS, SLICE_NANO, SLICE_NANO_MAX, SLICE_S, SLICE_S_MAX, Hold, Purse, slice_for
from sparewatt.ledger.model import ZERO_AMOUNT
from tests.unit.ledger.samples import PAYER, amount


@pytest.fixture
def purse() -> Purse:
    return Purse(PAYER, free_promo=100, free_paid=200)


def held(purse: Purse, nano: int) -> Hold:
    hold = purse.hold(Nano(nano), now_s=5.0)
    assert hold is not None
    return hold


def test_a_hold_takes_free_credits_first(purse: Purse) -> None:
    assert held(purse, 150).amount == amount(promo=100, paid=50)
    assert purse.free == amount(paid=150)
    assert held(purse, 150).amount == amount(paid=150)
    assert purse.free == ZERO_AMOUNT


def test_more_than_is_free_is_not_held_and_nothing_changes(purse: Purse) -> None:
    held(purse, 1)
    before = purse.free
    assert purse.hold(Nano(300), now_s=5.0) is None
    assert (purse.free, purse.holds) == (before, 1)


def test_holding_nothing_works_without_money() -> None:
    assert held(Purse(PAYER), 0).amount == ZERO_AMOUNT


def test_settling_keeps_what_was_spent_and_frees_the_rest(purse: Purse) -> None:
    held(purse, 150).settle(amount(promo=100, paid=20))
    assert (purse.spent, purse.held, purse.free) == (amount(promo=100, paid=20), ZERO_AMOUNT, amount(paid=180))


def test_settling_twice_does_nothing_more(purse: Purse) -> None:
    hold = held(purse, 150)
    hold.settle(amount(promo=10))
    hold.settle(amount(promo=100))
    hold.release()
    assert (purse.spent, purse.holds) == (amount(promo=10), 0)


def test_releasing_costs_nothing(purse: Purse) -> None:
    held(purse, 300).release()
    assert (purse.free, purse.is_idle) == (amount(promo=100, paid=200), True)


@pytest.mark.parametrize("cost", [amount(promo=101), amount(paid=51), amount(promo=-1), amount(promo=-5, paid=5)])
def test_a_cost_beyond_the_hold_is_refused_and_nothing_changes(purse: Purse, cost: object) -> None:
    hold = held(purse, 150)
    with pytest.raises(ValueError, match="more than was held"):
        hold.settle(cost)  # type: ignore[arg-type]
    assert (hold.is_settled, purse.holds, purse.spent) == (False, 1, ZERO_AMOUNT)


def test_posting_takes_from_what_is_reserved(purse: Purse) -> None:
    held(purse, 150).settle(amount(promo=100))
    purse.mark_posted(amount(promo=100))
    assert (purse.reserved, purse.spent, purse.free) == (amount(paid=200), ZERO_AMOUNT, amount(paid=200))


def test_only_what_is_free_is_given_back(purse: Purse) -> None:
    hold = held(purse, 150)
    assert not purse.is_idle
    assert purse.give_back() == amount(paid=150)
    hold.release()
    assert purse.free == amount(promo=100, paid=50)
    assert purse.is_idle


def test_what_is_settled_but_not_posted_keeps_a_purse_busy(purse: Purse) -> None:
    held(purse, 10).settle(amount(promo=10))
    assert not purse.is_idle


def test_a_purse_that_runs_low_needs_a_refill(purse: Purse) -> None:
    held(purse, 100)
    assert purse.refill_nano == 0
    held(purse, 150)
    assert purse.refill_nano == SLICE_NANO


def test_a_slice_is_for_a_few_holds_like_the_last() -> None:
    assert slice_for(1) == SLICE_NANO
    assert slice_for(SLICE_NANO) == SLICE_HOLDS * SLICE_NANO


def filled(purse: Purse, *, at_s: float, is_full: bool = True) -> None:
    purse.begin_refill(now_s=at_s)
    purse.end_refill(is_full=is_full, now_s=at_s)


def test_a_purse_needs_a_refill_when_half_of_its_slice_is_gone() -> None:
    purse = Purse(PAYER, free_paid=SLICE_NANO)
    filled(purse, at_s=0.0)
    held(purse, SLICE_NANO // 2)
    assert purse.refill_nano == 0
    held(purse, 1)
    assert purse.refill_nano == SLICE_NANO


def test_a_purse_needs_no_refill_when_its_account_had_no_more() -> None:
    purse = Purse(PAYER, free_paid=SLICE_NANO // 4)
    filled(purse, at_s=0.0, is_full=False)
    held(purse, 1)
    assert purse.refill_nano == 0


def test_slices_grow_while_they_go_fast_and_shrink_when_they_last() -> None:
    purse = Purse(PAYER, free_paid=SLICE_NANO_MAX)
    filled(purse, at_s=0.0)
    assert purse.slice_nano == SLICE_NANO
    filled(purse, at_s=SLICE_S - 1)
    filled(purse, at_s=2 * (SLICE_S - 1))
    assert purse.slice_nano == 4 * SLICE_NANO
    filled(purse, at_s=2 * SLICE_S + SLICE_S_MAX)
    assert purse.slice_nano == 2 * SLICE_NANO
    for step in range(100):
        filled(purse, at_s=100 + 0.1 * step)
    assert purse.slice_nano == SLICE_NANO_MAX


def test_slices_of_an_account_that_has_no_more_do_not_grow() -> None:
    purse = Purse(PAYER)
    for step in range(10):
        filled(purse, at_s=0.1 * step, is_full=False)
    assert purse.slice_nano == SLICE_NANO
