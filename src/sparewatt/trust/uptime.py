"""Uptime of a node over the last days, from what the network's history keeps. Pure.

Gateways count for how long they observed a node and for how long of that it was up. Time in which its owner had paused
it, or it was finishing its jobs before it stops, is not in either: it costs nothing, and earns nothing.
"""

from __future__ import annotations

DAYS = 30
DAYS_MIN = 7
"""Before that nobody can say how reliable a machine is."""


def uptime_of(*, up_s: float, known_s: float, days: int) -> float | None:
    """A share; None while it is unknown. `days`: on how many the node was observed."""
    if days < DAYS_MIN or known_s <= 0.0:
        return None
    return min(1.0, max(0.0, up_s) / known_s)
