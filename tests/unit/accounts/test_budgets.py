from __future__ import annotations

import datetime as dt
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.accounts.budgets import budget_state, period_end, period_start
from sparewatt.store.database import Period

NOW = dt.datetime(2026, 11, 15, 8, 30, tzinfo=dt.UTC)  # a Sunday
moments = st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2040, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("day", dt.datetime(2026, 11, 15, tzinfo=dt.UTC), dt.datetime(2026, 11, 16, tzinfo=dt.UTC)),
        ("week", dt.datetime(2026, 11, 9, tzinfo=dt.UTC), dt.datetime(2026, 11, 16, tzinfo=dt.UTC)),
        ("month", dt.datetime(2026, 11, 1, tzinfo=dt.UTC), dt.datetime(2026, 12, 1, tzinfo=dt.UTC)),
    ],
)
def test_a_period_begins_at_midnight_utc(period: Period, start: dt.datetime, end: dt.datetime) -> None:
    assert (period_start(period, NOW), period_end(period, NOW)) == (start, end)


def test_another_time_zone_is_the_same_moment() -> None:
    late = dt.datetime(2026, 11, 16, 1, 0, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert period_start("day", late) == dt.datetime(2026, 11, 15, tzinfo=dt.UTC)


@given(moments, st.sampled_from(get_args(Period)))
def test_every_moment_is_in_one_period_and_periods_join(now: dt.datetime, period: Period) -> None:
    start, end = period_start(period, now), period_end(period, now)
    assert start <= now < end
    assert period_start(period, start) == start
    assert period_start(period, end) == end
    assert period_start(period, end - dt.timedelta(microseconds=1)) == start


@pytest.mark.parametrize(
    ("spent", "left", "warns"), [(0, 100, False), (79, 21, False), (80, 20, True), (100, 0, True), (130, 0, True)]
)
def test_what_is_left_is_never_below_zero_and_the_warning_comes_at_four_fifths(
    spent: int, left: int, *, warns: bool
) -> None:
    state = budget_state(budget_nano=100, period="day", spent_nano=spent, now=NOW)
    assert (state.left_nano, state.is_nearly_used) == (left, warns)
    assert state.resets_at == period_end("day", NOW)
