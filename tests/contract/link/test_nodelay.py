"""No token waits for Nagle: TCP_NODELAY is set at both ends of a link, and towards clients.

A listening socket without a protocol number is the trap: asyncio then leaves it out, and bursts stall for 40 ms.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from typing import cast

import aiohttp
import pytest
from aiohttp import web

from sparewatt.edge.server import listen, serving
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.picows_sockets import PicowsSocket
from sparewatt.link.sockets import Socket
from sparewatt.link.websocket_library import WebSocketLibrary
from tests.contract.link.servers import SERVERS, dialled, listener
from tests.unit.edge.served import plain_refusals

LIBRARIES = ["picows", "aiohttp"]


def has_nodelay(transport: asyncio.BaseTransport) -> bool:
    raw = transport.get_extra_info("socket")
    return bool(raw.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY))


def transport_of(socket: Socket) -> asyncio.BaseTransport:
    if isinstance(socket, PicowsSocket):
        assert socket._transport is not None
        return socket._transport.underlying_transport
    assert isinstance(socket, AiohttpSocket)
    ws = cast("aiohttp.ClientWebSocketResponse", socket._ws)
    assert ws._conn is not None
    assert ws._conn.transport is not None
    return ws._conn.transport


@pytest.mark.parametrize("proto", [sockets.IPPROTO_TCP, 0])
@pytest.mark.parametrize("far", LIBRARIES)
@pytest.mark.parametrize("near", LIBRARIES)
async def test_both_ends_of_a_link_send_at_once(near: WebSocketLibrary, far: WebSocketLibrary, proto: int) -> None:
    async with SERVERS[far](on=listener(proto=proto)) as server, dialled(server, near) as (node, _):
        assert has_nodelay(transport_of(node))
        assert has_nodelay(server.transports[0])


async def test_a_client_of_the_gateway_is_sent_every_token_at_once() -> None:
    seen: list[bool] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append(has_nodelay(request.transport))
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    bound = listen("127.0.0.1", 0)
    assert bound.proto == sockets.IPPROTO_TCP
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
    async with (
        serving(app, bound, refusals=plain_refusals()),
        aiohttp.ClientSession() as session,
        session.get(url) as reply,
    ):
        assert reply.status == 200
    assert seen == [True]
