"""Uptime over the last days."""

from __future__ import annotations

import pytest

from sparewatt.trust.uptime import DAYS_MIN, uptime_of


@pytest.mark.parametrize(
    ("up_s", "known_s", "days", "uptime"),
    [(90.0, 100.0, DAYS_MIN, 0.9), (90.0, 100.0, DAYS_MIN - 1, None), (0.0, 0.0, 30, None), (101.0, 100.0, 30, 1.0)],
)
def test_uptime_is_a_share_of_what_was_observed_and_unknown_in_the_first_week(
    up_s: float, known_s: float, days: int, uptime: float | None
) -> None:
    assert uptime_of(up_s=up_s, known_s=known_s, days=days) == uptime
