"""The engine's slots: a fixed number of generations at once, and a first-come queue behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush

from sparewatt.testing.engine.settings import QUEUE_MAX, EngineQueueFull, EngineStats


class EngineSlots:
    """Hands out slot numbers, lowest first, and keeps the counts of `EngineStats` true."""

    def __init__(self, count: int, stats: EngineStats) -> None:
        self._count = count
        self._stats = stats
        self._free = list(range(count))
        self._semaphore = asyncio.Semaphore(count)

    def busy(self) -> list[bool]:
        """For each slot whether it is in use."""
        free = set(self._free)
        return [slot not in free for slot in range(self._count)]

    @asynccontextmanager
    async def occupy(self) -> AsyncIterator[None]:
        """Hold a slot. Leaving by an exception or a cancellation counts as cancelled."""
        await self._acquire()
        slot = heappop(self._free)
        self._stats.started += 1
        self._stats.running += 1
        has_finished = False
        try:
            yield
            has_finished = True
        finally:
            self._stats.finished += has_finished
            self._stats.cancelled += not has_finished
            self._stats.running -= 1
            heappush(self._free, slot)
            self._semaphore.release()

    async def _acquire(self) -> None:
        if self._stats.queued >= QUEUE_MAX:
            raise EngineQueueFull(f"{QUEUE_MAX} requests are already waiting.")
        self._stats.queued += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._stats.queued -= 1
