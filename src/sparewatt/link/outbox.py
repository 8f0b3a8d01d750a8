"""Frames waiting to be sent. Everything put in one turn of the event loop leaves as one WebSocket message."""

from __future__ import annotations

import asyncio
from collections import deque

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX, LINK_SEND_QUEUE_BYTES_MAX
from sparewatt.link.sockets import Socket


class Outbox:
    """A bounded queue with one sender. Putting never waits; a peer that stops reading ends the link instead."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, frame: bytes) -> None:
        if self._closed:
            return
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if self._queued_bytes > LINK_SEND_QUEUE_BYTES_MAX:
            self._closed = True
        self._wake.set()

    def close(self) -> None:
        """Send what is queued, then stop."""
        self._closed = True
        self._wake.set()

    async def run(self, socket: Socket) -> None:
        """Send until closed. Raises LinkLost when the peer does not keep up or is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._queued_bytes > LINK_SEND_QUEUE_BYTES_MAX:
                raise LinkLost("the other end stopped reading")
            while self._frames:
                await socket.send(self._take())
            if self._closed:
                return

    def _take(self) -> bytes:
        batch: list[bytes] = []
        size = 0
        while self._frames and size + len(self._frames[0]) <= LINK_MESSAGE_BYTES_MAX:
            size += len(self._frames[0])
            batch.append(self._frames.popleft())
        self._queued_bytes -= size
        return b"".join(batch)
