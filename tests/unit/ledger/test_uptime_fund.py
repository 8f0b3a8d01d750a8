"""What the uptime fund may pay now: a whole credit or nothing, within today's limit and what is there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.money import Nano
from sparewatt.ledger.uptime_fund import UptimeFundStatus, payable_now


def status(*, balance: int = 100, daily: int = 50, today: int = 0) -> UptimeFundStatus:
    return UptimeFundStatus(Nano(balance), Nano(daily), Nano(today))


@pytest.mark.parametrize(
    ("due", "fund", "paid"),
    [
        (20, status(), 20),
        (20, status(today=30), 20),
        (20, status(today=31), 0),
        (20, status(balance=19), 0),
        (60, status(), 50),
        (60, status(today=1), 0),
        (20, status(daily=0), 0),
        (20, status(daily=10, today=40), 0),
    ],
)
def test_a_credit_is_paid_whole_or_waits_and_is_a_days_limit_at_most(
    due: int, fund: UptimeFundStatus, paid: int
) -> None:
    assert payable_now(due, fund) == paid


amounts = st.integers(0, 10**12)


@given(due=amounts, balance=amounts, daily=amounts, today=amounts)
def test_neither_limit_nor_fund_is_ever_exceeded(due: int, balance: int, daily: int, today: int) -> None:
    paid = payable_now(due, status(balance=balance, daily=daily, today=today))
    assert 0 <= paid <= min(due, balance, max(0, daily - today))
