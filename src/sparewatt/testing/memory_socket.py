"""A fake WebSocket: two ends inside one process. It passes the same contract suite as the real one."""

from __future__ import annotations

import asyncio
from collections import deque

from sparewatt.link.sockets import CLOSED, CLOSED_FOR, Socket

CAPACITY = 1024
"""Messages in transit in one direction; at this bound the sender is paused (back-pressure), as by a real socket."""


class MemorySocket(Socket):
    """One end of a pair. Messages arrive in a later tick of the event loop."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.peer: MemorySocket = self
        self._capacity = capacity
        self._incoming: deque[bytes] = deque()
        self._is_due = False
        self._is_stalled = False
        self.close_code = 1000
        self._is_closed = asyncio.Event()

    def send(self, message: bytes) -> None:
        if self._end is None and self.peer.enqueue(message):
            self.is_paused = True

    async def wait_closed(self) -> None:
        await self._is_closed.wait()

    def stop_reading(self) -> None:
        """Read nothing more, like a peer that hangs."""
        self._is_stalled = True

    def resume_reading(self) -> None:
        self._is_stalled = False
        self.schedule_delivery()

    # between the two

    def enqueue(self, message: bytes) -> bool:
        """Returns whether the sender must pause."""
        self._incoming.append(message)
        self.schedule_delivery()
        return len(self._incoming) >= self._capacity

    def schedule_delivery(self) -> None:
        """In the next tick, deliver messages or the end of the connection."""
        if not self._is_due and not self._is_stalled:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def resume_sender(self) -> None:
        if self.is_paused:
            self._resume()

    def _close(self, code: int = 1000) -> None:
        self.close_code = code
        self._abort()

    def _abort(self) -> None:
        self.peer.schedule_delivery()
        self._is_closed.set()

    def _deliver(self) -> None:
        self._is_due = False
        while self._incoming and not self._is_stalled:
            self._on_message(self._incoming.popleft())
        if len(self._incoming) < self._capacity:
            self.peer.resume_sender()
        if self.peer.is_over and not self._incoming:
            self._mark_lost(CLOSED_FOR.get(self.peer.close_code, CLOSED))
            self._is_closed.set()


def socket_pair(*, capacity: int = CAPACITY) -> tuple[MemorySocket, MemorySocket]:
    """Two connected ends."""
    near, far = MemorySocket(capacity=capacity), MemorySocket(capacity=capacity)
    near.peer, far.peer = far, near
    return near, far
