"""When an era is due: after its end and a little more, from where the last ended, never more than the days kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.ledger.eras import due_span
from sparewatt.store.eras import DAYS_MAX, EraRow

DAY = 86_400
NOW = 20_000 * DAY
LAST = EraRow(
    era=7,
    since=NOW - 2 * DAY,
    until=NOW - DAY,
    inputs="",
    inputs_hash=bytes(32),
    pool_micro=0,
    given_micro=0,
    carried_nano=0,
    epoch=None,
    fees_left_nano=0,
    lease_fees_micro=0,
)


def test_the_first_era_is_the_last_whole_one() -> None:
    assert due_span(None, era_s=DAY, now_unix_s=NOW + 3_600.0) == (NOW - DAY, NOW)


@pytest.mark.parametrize(("after_s", "is_due"), [(-1.0, False), (599.0, False), (600.0, True), (5_000.0, True)])
def test_an_era_is_closed_ten_minutes_after_its_end(*, after_s: float, is_due: bool) -> None:
    span = due_span(LAST, era_s=DAY, now_unix_s=NOW + after_s)
    assert span == ((LAST.until, NOW) if is_due else None)


def test_a_short_era_waits_a_twentieth_of_itself() -> None:
    last = replace(LAST, until=NOW)
    assert due_span(last, era_s=600, now_unix_s=NOW + 629.0) is None
    assert due_span(last, era_s=600, now_unix_s=NOW + 630.0) == (NOW, NOW + 600)


def test_days_without_a_gateway_are_one_era_and_no_longer_than_counts_are_kept() -> None:
    assert due_span(replace(LAST, until=NOW - 5 * DAY), era_s=DAY, now_unix_s=NOW + 700.0) == (NOW - 5 * DAY, NOW)
    since, until = due_span(replace(LAST, until=NOW - 500 * DAY), era_s=DAY, now_unix_s=NOW + 700.0) or (0, 0)
    assert until - since < DAYS_MAX * DAY


def test_a_changed_length_goes_on_where_the_last_ended() -> None:
    last = replace(LAST, until=NOW - 300)
    assert due_span(last, era_s=DAY, now_unix_s=NOW + 700.0) == (NOW - 300, NOW)
