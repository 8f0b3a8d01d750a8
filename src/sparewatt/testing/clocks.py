"""A clock that stands still until it is told to go on: deadlines without waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class ManualTimer:
    """Implements Timer."""

    due_s: float
    callback: Callable[[], None]
    _owner: list[ManualTimer] = field(repr=False)

    def cancel(self) -> None:
        """Lets go of the callback, as an event loop's timers do."""
        self.callback = _nothing
        if self in self._owner:
            self._owner.remove(self)


def _nothing() -> None:
    """What a timer calls that was cancelled."""


class ManualClock:
    """Implements Clock. Alarms ring during `advance`, in the order in which they are due."""

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
        """Alarms that are set and neither rang nor were cancelled."""
        return len(self._timers)

    def advance(self, by_s: float) -> None:
        """Let time pass. Alarms that are set meanwhile and come due within it ring too."""
        until_s = self._now_s + by_s
        while (timer := min(self._timers, key=lambda t: t.due_s, default=None)) is not None and timer.due_s <= until_s:
            callback = timer.callback
            timer.cancel()
            self._now_s = max(self._now_s, timer.due_s)
            callback()
        self._now_s = until_s
