"""Waiting: how long to hold back before a restart, and a pause on a clock that came in by argument."""

from __future__ import annotations

import asyncio

from sparewatt.core.clock import Clock
from sparewatt.core.rng import Rng

FIRST_DELAY_S = 0.5
DELAY_S_MAX = 30.0
HEALTHY_AFTER_S = 60.0
"""A child that ran this long was well: its next crash counts as its first."""


class Backoff:
    """Doubling delays with jitter: each is between half of its ceiling and all of it."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._ceiling_s = FIRST_DELAY_S

    def next_delay_s(self, *, uptime_s: float) -> float:
        """Delay before the next start of something that ran for `uptime_s` and then failed."""
        if uptime_s >= HEALTHY_AFTER_S:
            self._ceiling_s = FIRST_DELAY_S
        ceiling_s = self._ceiling_s
        self._ceiling_s = min(2 * ceiling_s, DELAY_S_MAX)
        return ceiling_s * (1 + self._rng.random()) / 2


async def sleep(delay_s: float, *, clock: Clock) -> None:
    """Sleep by `clock`."""
    rung = asyncio.Event()
    timer = clock.call_later(delay_s, rung.set)
    try:
        await rung.wait()
    finally:
        timer.cancel()
