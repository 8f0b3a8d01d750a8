"""The table of match times: read from validators' records."""

from __future__ import annotations

from typing import Any

from bench.lease_match import MatchTimes, report, times_of


def a_record(**notes: int) -> dict[str, Any]:
    return {"notes": [{"what": "reveal", "at_ms": 1}, *({"what": what, "at_ms": at} for what, at in notes.items())]}


def test_the_first_certificate_and_the_last_acceptance_count() -> None:
    records = [a_record(certified=600, over=900), a_record(certified=500, over=700), a_record(over=1100)]
    assert times_of(records, 2.0, 1) == MatchTimes(2.0, 0.5, 1.1, 1)


def test_the_table_says_how_many_needed_another_attempt() -> None:
    text = report([MatchTimes(2.0, 0.5, 0.75, 1), MatchTimes(4.0, 1.5, 2.0, 2)])
    assert "| PROVIDER_LOOKUP to certificate | p50 < 2.5 s, p95 < 5 s | 0.50 s | 1.50 s | 1.50 s | 1.50 s |" in text
    assert "more than one attempt: 1." in text
