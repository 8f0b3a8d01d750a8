"""Two ends of a WebSocket inside one process. They pass the same contract suite as aiohttp's."""

from __future__ import annotations

import asyncio
from collections import deque

from sparewatt.core.errors import LinkLost

CAPACITY = 1024
"""Messages on their way in one direction; a full line makes the sender wait, as a socket does."""


class _Line:
    """What both ends share."""

    def __init__(self) -> None:
        self.closed = False
        self.changed = asyncio.Condition()


class MemorySocket:
    """Implements Socket: one end of a pair."""

    def __init__(self, line: _Line, *, inbox: deque[bytes], outbox: deque[bytes], capacity: int) -> None:
        self._line = line
        self._inbox = inbox
        self._outbox = outbox
        self._capacity = capacity
        self._closed_here = False

    async def send(self, message: bytes) -> None:
        async with self._line.changed:
            await self._line.changed.wait_for(lambda: self._line.closed or len(self._outbox) < self._capacity)
            if self._line.closed:
                raise LinkLost("the socket is closed")
            self._outbox.append(message)
            self._line.changed.notify_all()

    async def receive(self) -> bytes:
        """What was sent before the other end closed still arrives."""
        async with self._line.changed:
            await self._line.changed.wait_for(lambda: self._line.closed or self._inbox)
            if not self._inbox or self._closed_here:
                raise LinkLost("the other end closed the socket")
            self._line.changed.notify_all()
            return self._inbox.popleft()

    async def close(self) -> None:
        async with self._line.changed:
            self._line.closed = self._closed_here = True
            self._line.changed.notify_all()


def socket_pair(*, capacity: int = CAPACITY) -> tuple[MemorySocket, MemorySocket]:
    """Two connected ends."""
    line, there, back = _Line(), deque[bytes](), deque[bytes]()
    return (
        MemorySocket(line, inbox=back, outbox=there, capacity=capacity),
        MemorySocket(line, inbox=there, outbox=back, capacity=capacity),
    )
