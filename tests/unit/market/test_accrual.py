"""What a payment stream pays, to the last unit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.accrual import PaymentStream, due_uusd, runway_s, settle

RUNNING = PaymentStream(deposit_uusd=1_000_000, rate_uusd=1_000_000, since=100, end_at=10_000)


def test_pay_is_rounded_down_and_the_remainder_stays() -> None:
    assert due_uusd(RUNNING, at=100) == 0
    assert due_uusd(RUNNING, at=101) == 277
    assert due_uusd(RUNNING, at=100 + 3600) == 1_000_000


def test_no_more_than_the_deposit_or_the_agreed_time_is_paid() -> None:
    assert due_uusd(RUNNING, at=9_999) == 1_000_000
    short = PaymentStream(deposit_uusd=10**9, rate_uusd=3600, since=0, end_at=10)
    assert due_uusd(short, at=10**6) == 10


def test_a_stream_with_rate_zero_pays_nothing() -> None:
    assert due_uusd(PaymentStream(deposit_uusd=5), at=10**6) == 0
    assert runway_s(PaymentStream(deposit_uusd=5), at=10**6) == 0


def test_an_overpayment_is_not_reclaimed() -> None:
    settled = settle(RUNNING, at=1000, fee_bps=500).stream
    assert due_uusd(settled, at=500) == 0


@given(st.lists(st.integers(0, 500), max_size=20), st.integers(1, 10**9), st.integers(0, 1000))
def test_settling_often_is_settling_once(waits: list[int], rate: int, fee_bps: int) -> None:
    stream = PaymentStream(deposit_uusd=10**12, rate_uusd=rate, since=0, end_at=10**9)
    often, pay, fee, at = stream, 0, 0, 0
    for wait in waits:
        at += wait
        step = settle(often, at=at, fee_bps=fee_bps)
        often, pay, fee = step.stream, pay + step.pay_uusd, fee + step.fee_uusd
    once = settle(stream, at=at, fee_bps=fee_bps)
    assert (often, pay, fee) == (once.stream, once.pay_uusd, once.fee_uusd)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(100, 5000))
def test_the_runway_is_how_long_the_deposit_lasts(deposit: int, rate: int, at: int) -> None:
    stream = PaymentStream(deposit_uusd=deposit, rate_uusd=rate, since=100, end_at=10**12)
    left = runway_s(stream, at=at)
    assert due_uusd(stream, at=at + left) <= deposit
    assert due_uusd(stream, at=at + left + 3601) >= min(deposit, due_uusd(stream, at=at))
