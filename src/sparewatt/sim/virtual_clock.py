"""The product's clock, told by the world: alarms are events of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timeline(Protocol):
    """What the clock needs of the world."""

    now_s: float

    def call_at(self, when_s: float, what: Callable[..., None], *args: object) -> None: ...


class VirtualTimer:
    """Implements Timer."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()


class VirtualClock:
    """Implements Clock."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now_s(self) -> float:
        return self._timeline.now_s

    def unix_s(self) -> float:
        return self._timeline.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        self._timeline.call_at(self._timeline.now_s + max(0.0, delay_s), timer.fire)
        return timer
