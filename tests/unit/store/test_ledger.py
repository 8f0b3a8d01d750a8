"""Which months of the ledger are kept."""

from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.store.ledger import retention_start


def at(text: str) -> float:
    return dt.datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("now", "months", "since"),
    [
        ("2026-11-15T08:00", 0, "2026-11-01T00:00"),
        ("2026-11-01T00:00", 1, "2026-10-01T00:00"),
        ("2026-01-31T23:59", 1, "2025-12-01T00:00"),
        ("2026-03-31T12:00", 14, "2025-01-01T00:00"),
        ("2026-12-31T12:00", 24, "2024-12-01T00:00"),
    ],
)
def test_whole_months_are_kept_besides_the_current_one(now: str, months: int, since: str) -> None:
    assert retention_start(at(now), months) == at(since)
