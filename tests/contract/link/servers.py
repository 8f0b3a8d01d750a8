"""The gateway's end on a real port: aiohttp's route, or a bare front end whose connections are adopted by picows."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import aiohttp
from aiohttp import web

from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.dialer import dial
from sparewatt.link.picows_sockets import adopt
from sparewatt.link.sockets import Socket
from sparewatt.link.websocket_library import WebSocketLibrary
from tests.waiting import CEILING_S, turns


@dataclass(slots=True)
class Server:
    port: int = 0
    scheme: str = "http"
    arrived: asyncio.Queue[Socket] = field(default_factory=asyncio.Queue)
    transports: list[asyncio.Transport] = field(default_factory=list)
    """Of each connection, in the order of `arrived`."""
    give_to: Callable[[asyncio.Transport, bytes], object] = field(init=False)
    """What a front end does with a connection and its head."""

    def __post_init__(self) -> None:
        self.give_to = lambda transport, head: adopt(transport, head, self.arrived.put_nowait)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/link"

    async def next(self) -> Socket:
        async with asyncio.timeout(CEILING_S):
            return await self.arrived.get()


class Front(asyncio.Protocol):
    """A server that reads a request's head, and gives the connection away."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.transports.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._server.give_to(self._transport, self._head)


def listener(*, proto: int = socket.IPPROTO_TCP) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    made.bind(("127.0.0.1", 0))
    made.listen()
    made.setblocking(False)
    return made


@asynccontextmanager
async def picows_server(*, tls: ssl.SSLContext | None = None, on: socket.socket | None = None) -> AsyncIterator[Server]:
    server, loop = Server(scheme="https" if tls else "http"), asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Front(server), sock=on or listener(), ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for transport in server.transports:
            transport.abort()
        await turns()  # until they are gone: uvloop does not close over one that is not


@asynccontextmanager
async def aiohttp_server(
    *, tls: ssl.SSLContext | None = None, on: socket.socket | None = None
) -> AsyncIterator[Server]:
    server = Server(scheme="https" if tls else "http")

    async def accept(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=False)
        await ws.prepare(request)
        found = AiohttpSocket(ws)
        assert request.transport is not None
        server.transports.append(request.transport)
        server.arrived.put_nowait(found)
        try:
            await found.wait_closed()
        finally:
            found.abort()
        return ws

    app = web.Application()
    app.add_routes([web.get("/link", accept)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.SockSite(runner, on or listener(), ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


SERVERS: Mapping[str, Callable[..., AbstractAsyncContextManager[Server]]] = {
    "picows": picows_server,
    "aiohttp": aiohttp_server,
}


@asynccontextmanager
async def dialled(server: Server, library: WebSocketLibrary) -> AsyncIterator[tuple[Socket, Socket]]:
    """The node's end and the gateway's."""
    async with aiohttp.ClientSession() as session:
        near = await dial(server.url, session=session, library=library)
        far = await server.next()
        try:
            yield near, far
        finally:
            near.abort()
            far.abort()
            await near.wait_closed()
            await far.wait_closed()
