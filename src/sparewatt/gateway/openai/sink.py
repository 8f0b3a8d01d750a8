"""From callbacks to a coroutine: collects a reply for the HTTP handler that writes it out.

Bounded without counting: a node may send only as much as it has credit for, and credit is given when bytes are written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.openai import error_body

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every reader of server-sent events skips."""


class BufferedSink:
    """Implements Sink."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._finished = False
        self._has_begun = False
        self._is_early = False
        self._is_quiet = False
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.headers: Mapping[str, str] = {}
        self.error: SparewattError | None = None

    def start(self, headers: Mapping[str, str]) -> None:
        self._has_begun = True
        self.headers = headers
        self._news.set()

    def data(self, data: bytes) -> None:
        self._pieces.append(data)
        self._last_s = asyncio.get_running_loop().time()
        self._news.set()

    def finish(self) -> None:
        self._finished = True
        self._news.set()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        self._has_begun = True
        if self._is_early:  # its head is out: the error can only be the last event
            self._pieces.append(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
        else:
            self.headers = headers
            self.error = error
        self._finished = True
        self._news.set()

    async def begun(self) -> None:
        """Wait for the reply to start or fail."""
        await self._news.wait()

    async def begun_within(self, timeout_s: float) -> bool:
        """Whether it starts or fails in that time. If not, the head goes out now, and a failure comes as an event."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            self._is_early = not self._has_begun
        return self._has_begun

    async def take(self) -> bytes | None:
        """What has come since the last time, or a comment if that was nothing; None when there will be no more."""
        while not self._pieces and not self._finished and not self._is_quiet:
            self._news.clear()
            await self._news.wait()
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            return data
        if self._finished:
            return None
        self._is_quiet = False
        return KEEP_ALIVE

    async def take_all(self) -> bytes:
        pieces = []
        while (piece := await self.take()) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    def keep_alive(self, after_s: float) -> None:
        """From now on a silence of so long is broken by a comment. Call `close` in the end."""
        self._last_s = asyncio.get_running_loop().time()
        self._watch(after_s, after_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, after_s: float, in_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(in_s, self._look, after_s)

    def _look(self, after_s: float) -> None:
        """Rings once for every silence, not for every piece."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last_s >= after_s:
            self._last_s, self._is_quiet = now_s, True
            self._news.set()
        self._watch(after_s, max(0.001, self._last_s + after_s - now_s))
