"""A visitor's WebSocket to the public address of a lease: bytes are relayed as they are, once the site has switched.

The gateway reads no message of it. It is bounded as every stream of a lease is: by the streams of visitors at once, by
the bytes under way, and in time. After a socket its connection ends, so nothing on it is read as a request again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from aiohttp import web

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.limits import KIB
from sparewatt.link.traffic import StreamOver, TrafficStream

if TYPE_CHECKING:
    from aiohttp._websocket.reader import WebSocketReader

SOCKETS_MAX = 48
"""Of one lease at a process: of the 64 streams that visitors share, some are left for pages."""
BUFFER_BYTES = 64 * KIB
"""Of what a visitor sends and the site has not taken; then the gateway stops reading."""
LOOK_S = 2.0
"""Between two looks whether the site is still public."""

StillPublic = Callable[[], Awaitable[bool]]


def wants_socket(request: web.BaseRequest) -> bool:
    return request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"


class SwitchedResponse(web.StreamResponse):
    """A head with 101, and then bytes without any framing."""

    _length_check = False


class VisitorBytes:
    """What a visitor sends after the switch. Stands where aiohttp has its own reader of WebSocket frames."""

    def __init__(self, protocol: web.RequestHandler) -> None:
        self._protocol = protocol
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_paused = False
        self._is_over = False
        self._news = asyncio.Event()

    def attach(self) -> None:
        self._protocol.set_parser(cast("WebSocketReader", self))
        self._protocol.keep_alive(False)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """By aiohttp."""
        self._pieces.append(bytes(data))
        self._size += len(data)
        if self._size > BUFFER_BYTES and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_reading()
        self._news.set()
        return False, b""

    def feed_eof(self) -> None:
        """By aiohttp, when the visitor's connection is gone."""
        self._is_over = True
        self._news.set()

    async def read(self) -> bytes | None:
        """The next bytes; None once the visitor has left."""
        while not self._pieces:
            if self._is_over:
                return None
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._size -= len(piece)
        if self._is_paused and self._size <= BUFFER_BYTES // 2 and not self._is_over:
            self._is_paused = False
            self._protocol.resume_reading()
        return piece


async def relay_socket(
    response: web.StreamResponse,
    visitor: VisitorBytes,
    stream: TrafficStream,
    *,
    first: bytes,
    received: AsyncIterator[bytes],
    is_public: StillPublic,
) -> None:
    """Both ways, until either side has ended or the site is not public any more. `first`: came with the site's head."""
    work = (_to_visitor(response, first, received), _to_site(visitor, stream), _look(is_public))
    relays = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.wait(relays)


async def _to_visitor(response: web.StreamResponse, first: bytes, received: AsyncIterator[bytes]) -> None:
    with suppress(OSError):  # the visitor has gone
        if first:
            await response.write(first)
        async for data in received:
            await response.write(data)


async def _to_site(visitor: VisitorBytes, stream: TrafficStream) -> None:
    with suppress(StreamOver):
        while (data := await visitor.read()) is not None:
            await stream.send(data)


async def _look(is_public: StillPublic) -> None:
    with suppress(StoreUnavailable):  # not knowing ends it: a visitor's page connects again
        while await is_public():  # noqa: ASYNC110 (asks the database)
            await asyncio.sleep(LOOK_S)
