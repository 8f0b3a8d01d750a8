"""What was sent of a stream, for who comes back to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from sparewatt.core.errors import JobFailed
from sparewatt.core.limits import RESPONSE_LOG_BYTES_MAX


class EventLog:
    """Events of one stream, in order, for any number of readers. The oldest go when it grows too long."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._first = 0
        self._bytes = 0
        self._over = False
        self._news = asyncio.Event()

    async def add(self, events: list[bytes]) -> None:
        for event in events:
            self._events.append(event)
            self._bytes += len(event)
        while self._bytes > RESPONSE_LOG_BYTES_MAX:
            self._bytes -= len(self._events.popleft())
            self._first += 1
        self._tell()

    def close(self) -> None:
        self._over = True
        self._tell()

    async def follow(self, *, after: int = -1) -> AsyncIterator[bytes]:
        """Raises JobFailed for a reader who comes too late."""
        place = after + 1
        while True:
            if place < self._first:
                raise JobFailed(
                    "The beginning of this stream is not kept any more. Fetch the response when it is over."
                )
            if place - self._first < len(self._events):
                yield self._events[place - self._first]
                place += 1
            elif self._over:
                return
            else:
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
