"""Fair queueing of work that would block the event loop.

All callbacks that are ready run in one tick of the event loop, during which nothing else is served: a thousand requests
that arrive at once would take half a second. Work beyond a tick's time budget waits in a `FairQueue`, which runs a
little of it per tick: round robin over the owners, first in, first out within one owner.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from time import monotonic

FAIR_QUEUE_TICK_S = 0.001
"""Queued work per tick of the event loop: everything else is delayed by this much."""
TICK_BUDGET_S = 0.002
"""How long a tick starts new requests; later ones are queued."""


class FairQueue:
    """It has no bound of its own: each user has at most one entry at a time."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        at_once: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`at_once`: how many calls a tick makes, where a call only causes work later in the same tick."""
        self._call_soon = call_soon
        self._at_once = at_once
        self._clock = clock
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self.is_empty = True
        self._began_s: float | None = None
        """When `must_wait` was first called in this tick."""
        self._tick_number = 0
        self._is_counting = False

    def must_wait(self) -> bool:
        """Whether new work has to be queued: others are queued already, or this tick has used its budget."""
        if self._began_s is None:
            self._began_s = self._clock()
            self._call_soon(self._end_tick)
            return not self.is_empty
        return not self.is_empty or self._clock() - self._began_s > TICK_BUDGET_S

    def tick_number(self) -> int:
        """The same number within one tick, another one in the next."""
        if not self._is_counting:
            self._is_counting = True
            self._call_soon(self._count_tick)
        return self._tick_number

    def enqueue(self, owner: Hashable, call: Callable[[], None]) -> None:
        """Make the call in a later tick."""
        self._waiting.setdefault(owner, deque()).append(call)
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
        owner, calls = self._waiting.popitem(last=False)
        call = calls.popleft()
        if calls:
            self._waiting[owner] = calls
        return call
