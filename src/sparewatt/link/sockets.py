"""What the link needs of a WebSocket: three methods. aiohttp's two kinds fit the same small adapter."""

from __future__ import annotations

import asyncio
from typing import Protocol

import aiohttp
from aiohttp import web

from sparewatt.core.errors import LinkLost, ProtocolViolation

CLOSE_S = 2.0


class Socket(Protocol):
    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes:
        """The next message. Raises LinkLost when there will be none."""
        ...

    async def close(self) -> None: ...


class AiohttpSocket:
    """Either end of an aiohttp WebSocket."""

    def __init__(self, ws: web.WebSocketResponse | aiohttp.ClientWebSocketResponse) -> None:
        self._ws = ws

    async def send(self, message: bytes) -> None:
        try:
            await self._ws.send_bytes(message)
        except (OSError, RuntimeError, aiohttp.ClientError) as error:
            raise LinkLost(f"the socket is closed ({type(error).__name__})") from None

    async def receive(self) -> bytes:
        message = await self._ws.receive()
        match message.type:
            case aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                return data
            case aiohttp.WSMsgType.TEXT:
                raise ProtocolViolation("the link carries binary messages only")
            case _:
                raise LinkLost("the other end closed the socket")

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._ws.close()
        except (TimeoutError, ConnectionError):
            return  # a peer that is gone says no goodbye
