"""Is a node paused right now, and why? By its owner, by its hours, or because the machine is too hot or draws too much.

A paused node finishes what it has and gets nothing new; nobody thinks worse of it. Pure: time and readings come in by
argument. A ceiling that was passed holds for a while, and until the reading is well below it, so that it does not flap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparewatt.node.hardware.gpu import SensorReading
from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S, OwnerRules

CEILING_HOLD_S = 60.0
"""At least this long, once a ceiling was passed."""
CEILING_BELOW_C = 8.0
CEILING_BELOW_SHARE = 0.9
"""Below this share of the ceiling it may work again."""


class HysteresisCeiling:
    """One figure that must stay below a limit."""

    def __init__(self) -> None:
        self._until_s = -math.inf

    def is_exceeded(self, value: float | None, *, limit: float | None, back: float, now_s: float) -> bool:
        """`back`: where it may work again. A figure that nobody knows stops nobody."""
        if limit is None or value is None:
            self._until_s = -math.inf if limit is None else self._until_s
            return now_s < self._until_s
        if value >= limit or (now_s < self._until_s and value > back):
            self._until_s = now_s + CEILING_HOLD_S
        return now_s < self._until_s


class PauseMonitor:
    def __init__(self) -> None:
        self._heat = HysteresisCeiling()
        self._power = HysteresisCeiling()

    def reason(
        self, wishes: OwnerRules, *, readings: Sequence[SensorReading], watts: float | None, unix_s: float, now_s: float
    ) -> str | None:
        """The first reason there is, in words."""
        hottest = max((r.temperature_c for r in readings if r.temperature_c is not None), default=None)
        hot, most = wishes.temperature_max_c, wishes.watts_max
        is_hot = self._heat.is_exceeded(hottest, limit=hot, back=(hot or 0.0) - CEILING_BELOW_C, now_s=now_s)
        is_hungry = self._power.is_exceeded(watts, limit=most, back=(most or 0.0) * CEILING_BELOW_SHARE, now_s=now_s)
        if unix_s < wishes.paused_until_unix_s:
            return "its owner paused it"
        if wishes.hours is not None and not wishes.hours.contains(unix_s):
            return f"it works only {wishes.hours}"[:100]
        if is_hot:
            return f"it is too hot (its owner's ceiling is {hot:g} °C)"
        if is_hungry:
            return f"it draws too much (its owner's ceiling is {most:g} W)"
        return None


def pause_end_unix_s(wishes: OwnerRules) -> float | None:
    """Unix seconds, if the owner's pause has an end."""
    return None if wishes.paused_until_unix_s >= UNTIL_RESUMED_UNIX_S else wishes.paused_until_unix_s
