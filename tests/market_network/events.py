"""A virtual clock: what happens next is what was set for the earliest time. Nothing waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timeline:
    def __init__(self) -> None:
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, at_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(at_ms, self.now_ms), next(self._order), act))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, act)

    def run(self, *, until_ms: int, done: Callable[[], bool]) -> None:
        while self._queue and not done():
            at_ms, _, act = heapq.heappop(self._queue)
            if at_ms > until_ms:
                return
            self.now_ms = at_ms
            act()
