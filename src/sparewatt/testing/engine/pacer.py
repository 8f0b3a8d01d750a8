"""Waiting: for a moment, for the next token, for the model to load. All of it on a clock that comes in by argument."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparewatt.core.clock import Clock, Timer, sleep_until
from sparewatt.testing.engine.settings import EngineSettings, ModelStillLoading

STEP_S_MIN = 0.002
"""Below this interval several tokens share a wake-up: a timer costs more than a token."""

FREE_RUN_STEPS = 64
"""Tokens at once when nothing is paced, so that other streams get their turn."""


class InstantClock:
    """A clock for tests: every alarm rings at once, and time jumps to the moment it was set for."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def unix_s(self) -> float:
        return 1_750_000_000.0 + self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        ring_at = self._now_s + delay_s
        return asyncio.get_running_loop().call_soon(self._fire, ring_at, callback)

    def _fire(self, ring_at: float, callback: Callable[[], None]) -> None:
        self._now_s = max(self._now_s, ring_at)
        callback()


class TokenPacer:
    """Token `i` is due at `start + i / tps`: an absolute schedule, so that late wake-ups are made good."""

    def __init__(self, clock: Clock, *, tps: float) -> None:
        self._clock = clock
        self._tps = tps
        self._start_s = clock.now_s()
        self._woke_s = self._start_s - STEP_S_MIN

    async def next_due(self, n_done: int) -> int:
        """Wait until the token after `n_done` is due; say how many are due by then (always more than `n_done`)."""
        if self._tps <= 0:
            await asyncio.sleep(0)
            return n_done + FREE_RUN_STEPS
        due_s = self._start_s + n_done / self._tps
        await sleep_until(self._clock, max(due_s, self._woke_s + STEP_S_MIN))
        self._woke_s = self._clock.now_s()
        return max(n_done + 1, int((self._woke_s - self._start_s) * self._tps) + 1)


class ModelLoader:
    """Whether the model is in memory: loaded from the start on, or on first use when the engine is cold."""

    def __init__(self, clock: Clock, settings: EngineSettings) -> None:
        self._clock = clock
        self._load_s = settings.load_s
        self._cold = settings.cold
        self._ready_at: float | None = None if settings.cold else clock.now_s() + settings.load_s

    @property
    def state(self) -> str:
        if self._ready_at is None:
            return "unloaded"
        return "loaded" if self._clock.now_s() >= self._ready_at else "loading"

    def check(self) -> None:
        """Refuse while loading at start; a cold engine is well, it only takes longer to answer."""
        if not self._cold and self.state == "loading":
            raise ModelStillLoading("Loading model")

    async def use(self) -> None:
        """Wait for a cold model; the first caller starts the load for all."""
        if self._ready_at is None:
            self._ready_at = self._clock.now_s() + self._load_s
        if self.state == "loading":
            await sleep_until(self._clock, self._ready_at)
