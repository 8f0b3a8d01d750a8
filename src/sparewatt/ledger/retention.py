"""How long jobs and postings are kept. Whole months go; what they add up to is carried over: balances stay right."""

from __future__ import annotations

import datetime as dt

MONTHS_PER_YEAR = 12


def retention_start(now_unix_s: float, months: int) -> float:
    """The beginning (UTC) of the oldest month that is kept: this one, and `months` whole ones before it."""
    now = dt.datetime.fromtimestamp(now_unix_s, dt.UTC)
    count = now.year * MONTHS_PER_YEAR + now.month - 1 - months
    first = dt.datetime(count // MONTHS_PER_YEAR, count % MONTHS_PER_YEAR + 1, 1, tzinfo=dt.UTC)
    return first.timestamp()
