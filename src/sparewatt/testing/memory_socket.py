"""Two ends of a WebSocket inside one process. They pass the same contract suite as the real ones."""

from __future__ import annotations

import asyncio
from collections import deque

from sparewatt.link.sockets import Socket

CAPACITY = 1024
"""Messages on their way in one direction; a full line makes the sender pause, as a socket does."""


class MemorySocket(Socket):
    """One end of a pair. What is sent arrives in a later turn of the event loop."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.peer: MemorySocket = self
        self._capacity = capacity
        self._incoming: deque[bytes] = deque()
        self._is_due = False
        self._is_held = False
        self._is_closed = asyncio.Event()

    def send(self, message: bytes) -> None:
        if self._end is None and self.peer.enqueue(message):
            self.is_paused = True

    async def wait_closed(self) -> None:
        await self._is_closed.wait()

    def stop_reading(self) -> None:
        """Read nothing more, as a peer that is stuck."""
        self._is_held = True

    def resume_reading(self) -> None:
        self._is_held = False
        self.schedule_delivery()

    # between the two

    def enqueue(self, message: bytes) -> bool:
        """Whether the line is full now."""
        self._incoming.append(message)
        self.schedule_delivery()
        return len(self._incoming) >= self._capacity

    def schedule_delivery(self) -> None:
        """In the next turn: is there a message, or the end?"""
        if not self._is_due and not self._is_held:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def resume_sender(self) -> None:
        if self.is_paused:
            self._resume()

    def _close(self, code: int = 1000) -> None:  # noqa: ARG002 (nobody looks at it in memory)
        self.peer.schedule_delivery()
        self._is_closed.set()

    def _abort(self) -> None:
        self._close()

    def _deliver(self) -> None:
        self._is_due = False
        while self._incoming and not self._is_held:
            self._on_message(self._incoming.popleft())
        if len(self._incoming) < self._capacity:
            self.peer.resume_sender()
        if self.peer.is_over and not self._incoming:
            self._mark_lost()
            self._is_closed.set()


def socket_pair(*, capacity: int = CAPACITY) -> tuple[MemorySocket, MemorySocket]:
    """Two connected ends."""
    near, far = MemorySocket(capacity=capacity), MemorySocket(capacity=capacity)
    near.peer, far.peer = far, near
    return near, far
