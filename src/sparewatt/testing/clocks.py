"""Clocks for tests: deadlines and timeouts without real waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sparewatt.core.clock import Timer


@dataclass(eq=False, slots=True)
class ManualTimer:
    """Implements Timer."""

    due_s: float
    callback: Callable[[], None]
    _owner: list[ManualTimer] = field(repr=False)

    def cancel(self) -> None:
        """Drops the reference to the callback, as an event loop's timers do."""
        self.callback = _nothing
        if self in self._owner:
            self._owner.remove(self)


def _nothing() -> None:
    """The callback of a cancelled timer."""


class ManualClock:
    """Implements Clock. Time passes only in `advance`, which fires timers in the order in which they are due."""

    def __init__(self, *, now_s: float = 1000.0, unix_s: float = 1_700_000_000.0) -> None:
        self._now_s = now_s
        self._unix_offset_s = unix_s - now_s
        self._timers: list[ManualTimer] = []

    def now_s(self) -> float:
        return self._now_s

    def unix_s(self) -> float:
        return self._now_s + self._unix_offset_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self._now_s + max(0.0, delay_s), callback, self._timers)
        self._timers.append(timer)
        return timer

    @property
    def pending(self) -> int:
        """Timers that neither fired nor were cancelled."""
        return len(self._timers)

    def advance(self, by_s: float) -> None:
        """Let time pass. Timers that are set meanwhile and fall due within it fire too."""
        until_s = self._now_s + by_s
        while (timer := min(self._timers, key=lambda t: t.due_s, default=None)) is not None and timer.due_s <= until_s:
            callback = timer.callback
            timer.cancel()
            self._now_s = max(self._now_s, timer.due_s)
            callback()
        self._now_s = until_s


class InstantClock:
    """Implements Clock. Every timer fires on the next tick of the event loop, and time jumps to when it was due."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def unix_s(self) -> float:
        return 1_750_000_000.0 + self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_soon(self._fire, self._now_s + delay_s, callback)

    def _fire(self, due_s: float, callback: Callable[[], None]) -> None:
        self._now_s = max(self._now_s, due_s)
        callback()
