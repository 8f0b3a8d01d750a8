"""Renters' records: one change of mind is no verdict, a habit is, and an owner without a rule declines nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.trust.renter_record import PPM, RenterRecord, is_declined


@pytest.mark.parametrize(
    ("orders", "broken", "percent", "declined"),
    [
        (1, 1, 50, False),  # one of three, with the two that each begins with
        (3, 3, 50, True),
        (10, 5, 50, False),
        (10, 7, 50, True),
        (1, 1, 0, True),
        (0, 0, 0, False),
        (5, 5, 100, False),
    ],
)
def test_a_share_of_broken_orders_declines(*, orders: int, broken: int, percent: int, declined: bool) -> None:
    assert is_declined(orders=orders, broken=broken, broken_ppm_max=percent * PPM // 100) is declined


@given(st.integers(0, 1_000), st.integers(0, 1_000))
def test_without_a_rule_nobody_is_declined(orders: int, broken: int) -> None:
    assert not is_declined(orders=orders, broken=broken, broken_ppm_max=None)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, PPM))
def test_one_more_broken_order_never_helps(orders: int, broken: int, most: int) -> None:
    if is_declined(orders=orders, broken=broken, broken_ppm_max=most):
        assert is_declined(orders=orders + 1, broken=broken + 1, broken_ppm_max=most)


def test_broken_are_both_kinds() -> None:
    assert RenterRecord(orders=5, withdrawn=2, unstarted=1).broken == 3
