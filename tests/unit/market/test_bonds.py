"""Amounts of bonds: by the order's highest price, whatever the bid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.bonds import (
    ProviderBond,
    bid_bond_uusd,
    cancel_charge_uusd,
    commit_needs_uusd,
    forfeit_shares,
    lock_bond,
    minute_uusd,
    wanted_lock_uusd,
)

AMOUNT = st.integers(0, 2**64)


@pytest.mark.parametrize(
    ("max_price", "bond"), [(1, 1), (5, 1), (6, 1), (12, 2), (3_000_000, 500_000), (2**40 - 1, (2**40 - 1) // 6)]
)
def test_a_bid_bond_is_ten_minutes_of_the_highest_price(max_price: int, bond: int) -> None:
    assert bid_bond_uusd(max_price) == bond


def test_a_penny_bid_locks_the_bid_bond_and_a_usual_one_an_hour_of_pay() -> None:
    assert wanted_lock_uusd(1, max_price_uusd=3_000_000) == 500_000
    assert wanted_lock_uusd(500_001, max_price_uusd=3_000_000) == 500_001
    assert wanted_lock_uusd(2_000_000, max_price_uusd=3_000_000) == 2_000_000


def test_a_commit_needs_an_hour_for_each_open_bid() -> None:
    assert commit_needs_uusd([]) == 0
    assert commit_needs_uusd([3_000_000, 2_000_000]) == 5_000_000


@pytest.mark.parametrize(
    ("bond", "after", "amount"),
    [
        (ProviderBond(10), ProviderBond(3, 7, 0), 7),
        (ProviderBond(5, 1, 9), ProviderBond(0, 8, 7), 7),
        (ProviderBond(0, 0, 7), ProviderBond(0, 7, 0), 7),
        (ProviderBond(2, 0, 3), ProviderBond(0, 5, 0), 5),
        (ProviderBond(4, 50, 0), ProviderBond(0, 54, 0), 4),
        (ProviderBond(3, 50, 0), ProviderBond(3, 50, 0), 0),
        (ProviderBond(0), ProviderBond(0), 0),
    ],
)
def test_free_money_is_locked_first_and_less_than_the_least_not_at_all(
    bond: ProviderBond, after: ProviderBond, amount: int
) -> None:
    assert lock_bond(bond, wanted_uusd=7, least_uusd=4) == (after, amount)


@given(free=AMOUNT, unbonding=AMOUNT, wanted=AMOUNT, least=AMOUNT)
def test_a_lock_makes_and_loses_no_money(free: int, unbonding: int, wanted: int, least: int) -> None:
    after, amount = lock_bond(ProviderBond(free, 0, unbonding), wanted_uusd=wanted, least_uusd=least)
    assert after.free_uusd + after.locked_uusd + after.unbonding_uusd == free + unbonding
    assert after.locked_uusd == amount <= wanted
    assert min(after.free_uusd, after.unbonding_uusd) >= 0


@given(AMOUNT)
def test_who_owns_every_party_of_an_order_loses_half(amount: int) -> None:
    shares = forfeit_shares(amount)
    assert shares.challenger_uusd + shares.harmed_uusd + shares.insurance_uusd == amount
    assert 2 * shares.insurance_uusd >= amount


def test_a_renter_that_leaves_before_the_start_pays_the_time_set_for_it() -> None:
    assert cancel_charge_uusd(3_600_000, start_s=30, deposit_uusd=10**9) == 30_000
    assert cancel_charge_uusd(3_600_000, start_s=30, deposit_uusd=29_999) == 29_999
    assert cancel_charge_uusd(1, start_s=30, deposit_uusd=10**9) == 0


def test_a_minute_of_rate_is_never_nothing() -> None:
    assert [minute_uusd(rate) for rate in (1, 59, 60, 119, 120)] == [1, 1, 1, 1, 2]
