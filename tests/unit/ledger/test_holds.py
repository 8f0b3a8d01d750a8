"""A purse never spends what it does not have; a hold is settled once."""

from __future__ import annotations

import pytest

from sparewatt.core.money import Nano
from sparewatt.ledger.holds import SLICE_HOLDS, SLICE_NANO, Hold, Purse, slice_for
from sparewatt.ledger.model import NOTHING
from tests.unit.ledger.samples import PAYER, amount


@pytest.fixture
def purse() -> Purse:
    return Purse(PAYER, reserved=amount(promo=100, paid=200))


def held(purse: Purse, nano: int) -> Hold:
    hold = purse.hold(Nano(nano), now_s=5.0)
    assert hold is not None
    return hold


def test_a_hold_takes_free_credits_first(purse: Purse) -> None:
    assert held(purse, 150).amount == amount(promo=100, paid=50)
    assert purse.free == amount(paid=150)
    assert held(purse, 150).amount == amount(paid=150)
    assert purse.free == NOTHING


def test_more_than_is_free_is_not_held_and_nothing_changes(purse: Purse) -> None:
    held(purse, 1)
    before = purse.free
    assert purse.hold(Nano(300), now_s=5.0) is None
    assert (purse.free, purse.holds) == (before, 1)


def test_holding_nothing_works_without_money() -> None:
    assert held(Purse(PAYER), 0).amount == NOTHING


def test_settling_keeps_what_was_spent_and_frees_the_rest(purse: Purse) -> None:
    held(purse, 150).settle(amount(promo=100, paid=20))
    assert (purse.spent, purse.held, purse.free) == (amount(promo=100, paid=20), NOTHING, amount(paid=180))


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
    assert (hold.over, purse.holds, purse.spent) == (False, 1, NOTHING)


def test_posting_takes_from_what_is_reserved(purse: Purse) -> None:
    held(purse, 150).settle(amount(promo=100))
    purse.posted(amount(promo=100))
    assert (purse.reserved, purse.spent, purse.free) == (amount(paid=200), NOTHING, amount(paid=200))


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


def test_a_purse_that_runs_low_asks_for_more(purse: Purse) -> None:
    held(purse, 100)
    assert purse.thirsty_nano == 0
    held(purse, 150)
    assert purse.thirsty_nano == SLICE_NANO


def test_a_slice_is_for_a_few_holds_like_the_last() -> None:
    assert slice_for(1) == SLICE_NANO
    assert slice_for(SLICE_NANO) == SLICE_HOLDS * SLICE_NANO
