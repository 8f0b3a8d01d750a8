"""Frames waiting to be sent. Everything put in one turn of the event loop leaves as one WebSocket message."""

from __future__ import annotations

import asyncio
from collections import deque

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX, LINK_SEND_QUEUE_BYTES_MAX, LINK_SEND_S
from sparewatt.link.sockets import Socket


class Outbox:
    """A bounded queue with one sender. Putting never waits; a peer that stops reading ends the link instead."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._closed = False
        self._overflowed = False
        self._patience: asyncio.Timeout | None = None

    def has_room(self, n_bytes: int) -> bool:
        return self._queued_bytes + n_bytes <= LINK_SEND_QUEUE_BYTES_MAX

    def put(self, frame: bytes) -> None:
        if self._closed:
            return
        if not self.has_room(len(frame)):
            self._overflow()
            return
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._wake.set()

    def close(self) -> None:
        """Send what is queued, then stop."""
        self._closed = True
        self._wake.set()

    async def run(self, socket: Socket) -> None:
        """Send until closed. Raises LinkLost when the peer does not keep up or is gone."""
        try:
            async with asyncio.timeout(None) as self._patience:
                await self._send_all(socket, self._patience)
        except TimeoutError:
            raise LinkLost("the other end stopped reading") from None
        finally:
            self._closed = True
            self._drop_all()

    async def _send_all(self, socket: Socket, patience: asyncio.Timeout) -> None:
        now_s = asyncio.get_running_loop().time
        while not self._overflowed:
            while self._frames:
                patience.reschedule(now_s() + LINK_SEND_S)
                await socket.send(self._take())
            patience.reschedule(None)
            if self._closed:
                break
            await self._wake.wait()
            self._wake.clear()
        if self._overflowed:
            raise LinkLost("the other end stopped reading")

    def _overflow(self) -> None:
        """The sender may be waiting for a peer that reads nothing: its patience ends now."""
        self._closed = self._overflowed = True
        self._drop_all()
        self._wake.set()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    def _drop_all(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    def _take(self) -> bytes:
        """As many frames as fit below the limit: aiohttp refuses a message that reaches it."""
        batch: list[bytes] = []
        size = 0
        while self._frames and size + len(self._frames[0]) < LINK_MESSAGE_BYTES_MAX:
            size += len(self._frames[0])
            batch.append(self._frames.popleft())
        self._queued_bytes -= size
        return b"".join(batch)
