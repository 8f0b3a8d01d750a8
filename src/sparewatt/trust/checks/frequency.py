"""How often a node's answers are checked. Pure.

Checks are front-loaded: a cheat has to be found before its speed, which it has because it does not do the work, draws
traffic. A node that cheats on a share x of its jobs at a check rate c survives about 1 / (c·x) jobs; half of the first
ones leave a new identity next to nothing to earn.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SHARE = 0.5
FIRST_PASSES = 3
"""Checks that a node passes before it is a newcomer no longer: half of about six jobs."""
FAST_SHARE = 0.2
FAST_FACTOR = 1.3
"""How many times faster than its card allows is suspicious: below that, figures are not that exact."""
USUAL_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """What decides how often a node is checked."""

    passed: int = 0
    """Re-runs and probes since the last that failed."""
    is_suspect: bool = False
    """Its last check failed: every job that it gets is one."""
    speed_excess: float = 1.0
    """How fast it writes, as a multiple of what the memory of its card allows."""


def check_share(history: CheckHistory) -> float:
    """Of the node's next jobs, how many are checked."""
    if history.is_suspect:
        return 1.0
    if history.passed < FIRST_PASSES:
        return FIRST_SHARE
    return FAST_SHARE if history.speed_excess > FAST_FACTOR else USUAL_SHARE


def speed_excess(*, decode_tps: float, weights_bytes: float, bandwidth_bytes_s: float | None) -> float:
    """A decoding step reads all weights once, so memory bandwidth bounds it. 1 where the card is not known."""
    if not bandwidth_bytes_s or weights_bytes <= 0:
        return 1.0
    return decode_tps * weights_bytes / bandwidth_bytes_s
