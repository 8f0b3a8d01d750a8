"""A line for what does not fit into one turn of the event loop.

Whatever is ready is done in one turn, while nobody else is served: a thousand requests that come at once would be half
a second. Who has had enough, or comes when a turn has gone on for long, stands in line, and each turn does a little of
it. Whose turn it is goes round; those that stand for the same one are served in the order they came.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from time import monotonic

from sparewatt.core.limits import FAIR_QUEUE_TICK_S, TICK_BUDGET_S


class FairQueue:
    """As long as its users let it be: each of them stands in it once at a time."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        at_once: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`at_once`: how many are called in one turn, if what each makes is work that is done later in it."""
        self._call_soon = call_soon
        self._at_once = at_once
        self._clock = clock
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self.is_empty = True
        self._began_s: float | None = None
        """When the first came in this turn."""
        self._tick_number = 0
        self._is_counting = False

    def must_wait(self) -> bool:
        """Whether who comes now stands in line: others do already, or this turn has gone on for long."""
        if self._began_s is None:
            self._began_s = self._clock()
            self._call_soon(self._end_tick)
            return not self.is_empty
        return not self.is_empty or self._clock() - self._began_s > TICK_BUDGET_S

    def tick_number(self) -> int:
        """The same for whoever asks in one turn, and another in the next."""
        if not self._is_counting:
            self._is_counting = True
            self._call_soon(self._count_tick)
        return self._tick_number

    def enqueue(self, whose: Hashable, go: Callable[[], None]) -> None:
        """`go` is called in a later turn."""
        self._waiting.setdefault(whose, deque()).append(go)
        if self.is_empty:
            self.is_empty = False
            self._call_soon(self._run_tick)

    def _run_tick(self) -> None:
        until_s, called = self._clock() + FAIR_QUEUE_TICK_S, 0
        try:
            while self._waiting:
                called += 1
                self._pop_next()()
                if called == self._at_once or self._clock() >= until_s:
                    break
        finally:
            self.is_empty = not self._waiting
            if self._waiting:
                self._call_soon(self._run_tick)

    def _end_tick(self) -> None:
        self._began_s = None

    def _count_tick(self) -> None:
        self._is_counting = False
        self._tick_number += 1

    def _pop_next(self) -> Callable[[], None]:
        whose, ahead = self._waiting.popitem(last=False)
        go = ahead.popleft()
        if ahead:
            self._waiting[whose] = ahead
        return go
