"""How many reports a node may send on one link: a token bucket over its loads, pongs and specs. Pure.

An honest agent stays far below. Replies to jobs are bounded by the jobs that the gateway sends, and do not count.
"""

from __future__ import annotations

from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S

REPORTS_PER_S = 2 / LOAD_REPORT_INTERVAL_S
"""Twice what an agent sends between heartbeats while jobs of others come and go."""
REPORTS_BURST = 10 * REPORTS_PER_S
"""What has piled up behind a network that was stuck comes at once."""
SPECS_WEIGHT = 10
"""Specs are long, and every model in them is written into the matcher's table."""


class ReportMeter:
    __slots__ = ("_at_s", "_left")

    def __init__(self, *, now_s: float) -> None:
        self._at_s = now_s
        self._left = REPORTS_BURST

    def allows(self, weight: int, *, now_s: float) -> bool:
        """Count one report. False if the node sends too many."""
        self._left = min(REPORTS_BURST, self._left + (now_s - self._at_s) * REPORTS_PER_S)
        self._at_s = now_s
        self._left -= weight
        return self._left >= 0.0
