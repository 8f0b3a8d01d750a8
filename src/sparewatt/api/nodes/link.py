"""GET /link/v1: the WebSocket by which a node joins, where aiohttp serves it: on machines without picows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from sparewatt.api.endpoint import endpoint
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX
from sparewatt.edge.middleware import context_of
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import LINK_PATH


class LinkServer(Protocol):
    async def serve(self, socket: Socket, *, address: str) -> None:
        """One connection from `address` until it is a link or is rejected. A link lives by what its socket calls."""
        ...


@dataclass(slots=True, kw_only=True)
class LinkEndpoints:
    links: LinkServer

    @endpoint(f"GET {LINK_PATH}", access="public", status=101, content_type="application/octet-stream")
    async def open_link(self, request: web.Request) -> web.StreamResponse:
        """Open a node's link: a WebSocket. The node proves its key in the handshake."""
        ws = web.WebSocketResponse(max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=False, autoping=True)
        await ws.prepare(request)
        socket = AiohttpSocket(ws)
        try:
            await self.links.serve(socket, address=context_of(request).address)
            await socket.wait_closed()
        finally:
            socket.abort()
        return ws
