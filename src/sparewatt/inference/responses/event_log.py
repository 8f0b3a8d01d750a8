"""The events of one stream, kept for clients that come back to it. Bounded: the oldest events are dropped first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from sparewatt.core.errors import JobFailed
from sparewatt.core.limits import MIB

RESPONSE_LOG_BYTES_MAX = 4 * MIB
"""Events of an answer in the background that are kept for who comes back to its stream: some 15,000 tokens."""


class EventLog:
    """Any number of readers follow it, each at its own pace."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._first = 0
        """The number of the oldest event that is still here."""
        self._size_bytes = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    async def add(self, events: list[bytes]) -> None:
        for event in events:
            self._events.append(event)
            self._size_bytes += len(event)
        while self._size_bytes > RESPONSE_LOG_BYTES_MAX:
            self._size_bytes -= len(self._events.popleft())
            self._first += 1
        self._wake_readers()

    def close(self) -> None:
        """There will be no more events."""
        self._is_closed = True
        self._wake_readers()

    async def follow(self, *, after: int = -1) -> AsyncIterator[bytes]:
        """Events after the one of this number, until the log is closed. Raises JobFailed if they were dropped."""
        number = after + 1
        while True:
            if number < self._first:
                raise JobFailed(
                    "The beginning of this stream is not kept any more. Fetch the response when it is over."
                )
            if number - self._first < len(self._events):
                yield self._events[number - self._first]
                number += 1
            elif self._is_closed:
                return
            else:
                await self._changed.wait()

    def _wake_readers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
