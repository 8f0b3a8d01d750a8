"""Many deadlines on one timer of the event loop.

Nearly every deadline is cancelled long before it is due, so setting and cancelling one must be cheap: here each is one
operation on a dictionary. The price is precision: a deadline fires up to `TIMER_QUEUE_INTERVAL_S` late.
"""

from __future__ import annotations

import math
from typing import Protocol

from sparewatt.core.clock import Clock, Timer

TIMER_QUEUE_INTERVAL_S = 0.1
"""Between two scans of all deadlines: little, of the seconds that a deadline allows."""
TIMER_QUEUE_FIRED_MAX = 200
"""Deadlines fired in one tick of the event loop; those of all jobs on one dead node are due together."""
_SLACK_S = 1e-3
"""A timer of the event loop may fire this much early."""


class DeadlineHandler(Protocol):
    """Has at most one deadline in a queue."""

    def on_deadline(self) -> None:
        """Called once. The handler may set its next deadline."""
        ...


class TimerQueue:
    """Fires deadlines in the order in which they are due."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._due_s: dict[DeadlineHandler, float] = {}
        self._timer: Timer | None = None
        self._armed_for_s = math.inf
        self._fired_at_s = -math.inf

    def __len__(self) -> int:
        """How many deadlines are pending."""
        return len(self._due_s)

    def set(self, handler: DeadlineHandler, due_s: float) -> None:
        """Set, or replace, the handler's deadline; in seconds of the clock."""
        self._due_s[handler] = due_s
        if due_s < self._armed_for_s:
            self._arm(due_s)

    def cancel(self, handler: DeadlineHandler) -> None:
        self._due_s.pop(handler, None)

    def _arm(self, due_s: float) -> None:
        """Each firing scans all deadlines, so two are at least an interval apart."""
        at_s = max(due_s, self._fired_at_s + TIMER_QUEUE_INTERVAL_S)
        if at_s < self._armed_for_s:
            if self._timer is not None:
                self._timer.cancel()
            self._armed_for_s = at_s
            self._timer = self._clock.call_later(at_s - self._clock.now_s(), self._fire_due)

    def _fire_due(self) -> None:
        now_s = self._fired_at_s = self._clock.now_s()
        self._timer, self._armed_for_s = None, math.inf
        by_s = now_s + _SLACK_S
        due = sorted((due_s, at) for at, due_s in enumerate(self._due_s.values()) if due_s <= by_s)
        handlers = list(self._due_s) if due else []
        try:
            for _, at in due[:TIMER_QUEUE_FIRED_MAX]:
                self._fire(handlers[at], by_s)
        finally:  # an error in one handler must not stop the others' deadlines
            if self._due_s:
                self._arm(min(self._due_s.values()))

    def _fire(self, handler: DeadlineHandler, by_s: float) -> None:
        """A handler that was fired before may have cancelled this deadline, or put it off."""
        if self._due_s.get(handler, math.inf) <= by_s:
            del self._due_s[handler]
            handler.on_deadline()
