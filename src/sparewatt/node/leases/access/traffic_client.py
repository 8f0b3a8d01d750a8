"""Dials a gateway process's traffic socket when that process asks for it, and serves it until it is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp

from sparewatt import __version__
from sparewatt.core.errors import LinkError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.traffic import StreamAcceptor, TrafficLink
from sparewatt.link.websocket_library import WebSocketLibrary
from sparewatt.protocol.link.traffic import TRAFFIC_PATH
from sparewatt.protocol.signing import SigningKey

_log = Logger("sparewatt.node")
DIAL_S = 10.0


@dataclass(slots=True, kw_only=True, eq=False)
class TrafficClient:
    streams: StreamAcceptor
    session: aiohttp.ClientSession
    key: SigningKey
    rng: Rng
    library: WebSocketLibrary = "auto"

    async def serve(self, url: str) -> None:
        """`url`: of the process that asked. Raises nothing: the gateway asks again when it needs it."""
        try:
            await self._serve(url)
        except (LinkError, TimeoutError, aiohttp.ClientError, OSError) as error:
            _log.warning("lease_traffic_not_opened", why=str(error)[:200] or type(error).__name__)

    async def _serve(self, url: str) -> None:
        async with asyncio.timeout(DIAL_S):
            socket = await dial(url + TRAFFIC_PATH, session=self.session, library=self.library)
        try:
            await authenticate_to_gateway(
                socket,
                key=self.key,
                host=host_of(url),
                token=None,
                specs=None,
                agent_version=__version__,
                rng=self.rng,
            )
            link = TrafficLink(acceptor=self.streams)
            try:
                link.start(socket)
                await link.lost
            finally:
                link.close()
        finally:
            socket.close()
            await socket.wait_closed()
