"""The link on aiohttp's WebSocket: used without picows, and where an aiohttp route accepts the connection.

aiohttp offers `await receive()` and `await send()` instead of callbacks, so each socket has a task for either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import aiohttp
from aiohttp import WebSocketError, web

from sparewatt.core.errors import ProtocolViolation
from sparewatt.link.sockets import BROKEN, CLOSE_S, CLOSED, CLOSED_FOR, NOT_BINARY, Socket


class AiohttpSocket(Socket):
    """Either end of an aiohttp WebSocket."""

    def __init__(self, ws: web.WebSocketResponse | aiohttp.ClientWebSocketResponse) -> None:
        super().__init__()
        self._ws = ws
        self._outgoing: deque[bytes] = deque()
        self._wake_sender = asyncio.Event()
        self._close_code = 1000
        self._close_timer: asyncio.TimerHandle | None = None
        self._receiver = asyncio.create_task(self._receive_all())
        self._sender = asyncio.create_task(self._send_all())

    def send(self, message: bytes) -> None:
        if self._end is None:
            self._outgoing.append(message)
            self.is_paused = True
            self._wake_sender.set()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._sender])

    def _close(self, code: int = 1000) -> None:
        self._close_code = code
        self._wake_sender.set()
        self._close_timer = asyncio.get_running_loop().call_later(CLOSE_S, self._abort)

    def _abort(self) -> None:
        # Not at once: a task that is cancelled before its first tick never reaches its `finally`.
        asyncio.get_running_loop().call_soon(self._sender.cancel)

    async def _receive_all(self) -> None:
        while self._end is None:
            message = await self._ws.receive()
            match message.type:
                case aiohttp.WSMsgType.BINARY:
                    self._on_message(message.data)
                case aiohttp.WSMsgType.TEXT:
                    self._fail(ProtocolViolation(NOT_BINARY), code=1003)
                case aiohttp.WSMsgType.ERROR if isinstance(message.data, WebSocketError):
                    self._fail(ProtocolViolation(BROKEN), code=message.data.code)
                case _:
                    self._mark_lost(CLOSED_FOR.get(self._ws.close_code or 0, CLOSED))
        self._wake_sender.set()

    async def _send_all(self) -> None:
        """Send until the end. Messages queued before it still leave."""
        try:
            with suppress(OSError, RuntimeError, aiohttp.ClientError):  # `_tear_down` reports the loss
                await self._send_until_over()
                await self._ws.close(code=self._close_code)
        finally:
            await self._tear_down()

    async def _send_until_over(self) -> None:
        while self._outgoing or self._end is None:
            await self._wake_sender.wait()
            self._wake_sender.clear()
            while self._outgoing:
                await self._ws.send_bytes(self._outgoing.popleft())
            if self.is_paused:
                self._resume()

    async def _tear_down(self) -> None:
        """Close what is still open. aiohttp drops the connection when its own close is cancelled, hence timeout 0."""
        self._mark_lost()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._receiver.cancel()
        await asyncio.wait([self._receiver])
        with suppress(TimeoutError, OSError, RuntimeError, aiohttp.ClientError):
            async with asyncio.timeout(0):
                await self._ws.close(code=self._close_code)
