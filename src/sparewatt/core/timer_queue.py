"""Deadlines of many, kept by one timer. Most are taken back long before they ring: here that is a dictionary's work."""

from __future__ import annotations

import math
from typing import Protocol

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.limits import TIMER_QUEUE_FIRED_MAX, TIMER_QUEUE_INTERVAL_S

_SLACK_S = 1e-3
"""A timer of the event loop may ring so much early."""


class DeadlineHandler(Protocol):
    """Who has a deadline: one at a time."""

    def on_deadline(self) -> None:
        """It has come. Whoever wants another sets it."""
        ...


class TimerQueue:
    """Rings who is due, at most `TIMER_QUEUE_INTERVAL_S` late. Without deadlines it rings once more, then never."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._due_s: dict[DeadlineHandler, float] = {}
        self._timer: Timer | None = None
        self._armed_for_s = math.inf
        self._fired_at_s = -math.inf

    def __len__(self) -> int:
        """How many are waiting."""
        return len(self._due_s)

    def set(self, who: DeadlineHandler, due_s: float) -> None:
        """By the clock's seconds, in the place of the deadline that it had."""
        self._due_s[who] = due_s
        if due_s < self._armed_for_s:
            self._arm(due_s)

    def cancel(self, who: DeadlineHandler) -> None:
        """It need not ring any more."""
        self._due_s.pop(who, None)

    def _arm(self, due_s: float) -> None:
        """Not sooner after the last look than so many need: each is a walk over all."""
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
        late = sorted((due_s, at) for at, due_s in enumerate(self._due_s.values()) if due_s <= by_s)
        waiting = list(self._due_s) if late else []
        try:
            for _, at in late[:TIMER_QUEUE_FIRED_MAX]:
                self._fire(waiting[at], by_s)
        finally:  # what broke in one is not the others' fault
            if self._due_s:
                self._arm(min(self._due_s.values()))

    def _fire(self, who: DeadlineHandler, by_s: float) -> None:
        """Unless somebody who rang before it has taken its deadline back, or put it off."""
        if self._due_s.get(who, math.inf) <= by_s:
            del self._due_s[who]
            who.on_deadline()
