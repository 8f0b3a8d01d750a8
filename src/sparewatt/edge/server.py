"""The listening server: every connection gets its protocol object, and a check of its timeouts now and then."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from aiohttp import web

from sparewatt.core.limits import CONNECTIONS_CLOSED_PER_TICK
from sparewatt.edge.connection import Connection
from sparewatt.edge.connection_registry import ConnectionRegistry, LinkAcceptor
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.refusals import Refusals
from sparewatt.edge.settings import EdgeSettings
from sparewatt.edge.timeouts import ClientTimeouts

SHUTDOWN_S = 2.0
HANDSHAKE_S = 10.0
"""For a client's half of the TLS handshake: a few round trips."""
CHECK_TICK_S = 0.001
"""How long connections are checked before others run: ten thousand at once would take 10 ms."""
BACKLOG = 4096
"""Connections that the kernel keeps for us while we are busy; Linux may give fewer."""


@asynccontextmanager
async def serving(
    app: web.Application,
    listener: socket.socket,
    *,
    refusals: Refusals,
    settings: EdgeSettings | None = None,
    inference: InferenceEndpoints | None = None,
    links: LinkAcceptor | None = None,
    tls: ssl.SSLContext | None = None,
    timeouts: ClientTimeouts | None = None,
) -> AsyncIterator[ConnectionRegistry]:
    """Serve `app` on a socket that is bound already. A client that leaves cancels what runs for it.

    `inference`: endpoints that are served here and not by `app`. `links`: where nodes that dial are handed over.
    """
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("a runner that was set up has a server")
    loop = asyncio.get_running_loop()
    registry = ConnectionRegistry(
        manager, settings=settings or EdgeSettings(), inference=inference, links=links, refusals=refusals, loop=loop
    )
    handshake_s = HANDSHAKE_S if tls is not None else None
    server = await loop.create_server(
        lambda: Connection(registry, loop), sock=listener, ssl=tls, ssl_handshake_timeout=handshake_s, backlog=BACKLOG
    )
    checking = loop.create_task(_check_timeouts(registry, timeouts or ClientTimeouts()))
    try:
        yield registry
    finally:
        checking.cancel()
        server.close()
        await _close(registry)
        await runner.cleanup()


async def _check_timeouts(registry: ConnectionRegistry, timeouts: ClientTimeouts) -> None:
    while True:
        await asyncio.sleep(timeouts.check_s)
        began_s, closed = monotonic(), 0
        for connection in list(registry.connections):
            now_s = monotonic()
            if connection in registry.connections:
                closed += connection.check_timeouts(now_s, timeouts)
            if closed >= CONNECTIONS_CLOSED_PER_TICK or now_s - began_s > CHECK_TICK_S:
                await asyncio.sleep(0)
                began_s, closed = monotonic(), 0


async def _close(registry: ConnectionRegistry) -> None:
    """Idle connections end now, the others after their reply, or when they have had their time."""
    registry.is_draining = True
    for connection in list(registry.connections):
        if not connection.is_busy:
            connection.close()
    deadline_s = monotonic() + SHUTDOWN_S
    while any(connection.is_busy for connection in registry.connections):
        if monotonic() > deadline_s:
            break
        await asyncio.sleep(0.02)
    for connection in list(registry.connections):
        connection.abort()
