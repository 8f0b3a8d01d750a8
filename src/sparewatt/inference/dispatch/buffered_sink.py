"""A sink that buffers a reply for a coroutine, which translates it into another format.

It is bounded by flow control: a node sends only what it has credit for, and gets credit when the client has read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from sparewatt.core.errors import SparewattError
from sparewatt.inference.dispatch.model import DirectPath

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every reader of server-sent events skips."""


class BufferedSink:
    """Implements Sink."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._finished = False
        self.headers: Mapping[str, str] = {}
        self.error: SparewattError | None = None

    def start(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._news.set()

    def data(self, data: bytes) -> None:
        self._pieces.append(data)
        self._news.set()

    def direct_path(self) -> DirectPath | None:
        return None  # the waiting coroutine must be woken for every piece

    def finish(self) -> None:
        self._finished = True
        self._news.set()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.error = error
        self._finished = True
        self._news.set()

    async def begun(self) -> None:
        """Wait for the reply to start or fail."""
        await self._news.wait()

    async def take(self) -> bytes | None:
        """What has come since the last time; None when there will be no more."""
        while not self._pieces and not self._finished:
            self._news.clear()
            await self._news.wait()
        if not self._pieces:
            return None
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    async def take_all(self) -> bytes:
        pieces = []
        while (piece := await self.take()) is not None:
            pieces.append(piece)
        return b"".join(pieces)
