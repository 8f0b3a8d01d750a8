"""The table of starts: phases as differences, and what a reply says of a lease."""

from __future__ import annotations

from typing import Any

import pytest
from bench.lease_start import StartTimes, phase_of, report


def test_phases_are_differences_and_the_goals_are_named() -> None:
    text = report([StartTimes(1.0, 1.5, 2.5, 3.0)])
    assert "| the match to a running program |  | 1.00 s | 1.00 s | 1.00 s | 1.00 s |" in text
    assert "| the order's block to a running program | p50 < 5 s, p95 < 10 s | 1.50 s |" in text
    assert "| command to a running program | p50 < 7 s | 2.50 s |" in text


@pytest.mark.parametrize(
    ("lease", "phase"),
    [
        (None, "sent"),
        ({"order": None}, "sent"),
        ({"order": {"lease": None}}, "on_chain"),
        ({"order": {"lease": {"state": "pending"}}}, "pending"),
    ],
)
def test_how_far_a_lease_is(lease: Any, phase: str) -> None:
    assert phase_of(lease) == phase
