"""GET /link/v1/traffic: the WebSocket for streams of leases, which a node dials when this process asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from sparewatt.api.endpoint import endpoint
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.traffic import TRAFFIC_PATH

PING_S = 20.0
"""A socket without an answer to a ping is dead: routers forget connections that carry nothing."""


class TrafficServer(Protocol):
    async def serve(self, socket: Socket) -> None:
        """One connection until it carries streams or is rejected."""
        ...


@dataclass(slots=True, kw_only=True)
class TrafficEndpoints:
    traffic: TrafficServer

    @endpoint(f"GET {TRAFFIC_PATH}", access="public", status=101, content_type="application/octet-stream")
    async def open_traffic(self, request: web.Request) -> web.StreamResponse:
        """Open a node's socket for streams of leases. The node proves its key, and must have been asked."""
        ws = web.WebSocketResponse(max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=False, heartbeat=PING_S)
        await ws.prepare(request)
        socket = AiohttpSocket(ws)
        try:
            await self.traffic.serve(socket)
            await socket.wait_closed()
        finally:
            socket.abort()
        return ws
