"""Listening: every connection gets its protocol, and now and then a look at its deadlines."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from aiohttp import web

from sparewatt.core.limits import LET_GO_AT_ONCE
from sparewatt.gateway.front.connection import Connection
from sparewatt.gateway.front.doorkeeper import Doorkeeper, Read
from sparewatt.gateway.front.patience import Patience
from sparewatt.gateway.routes import HOT
from sparewatt.gateway.services import SERVICES

SHUTDOWN_S = 2.0
HANDSHAKE_S = 10.0
"""For a client's half of the TLS handshake: a few round trips."""
LOOK_TURN_S = 0.001
"""How long connections are looked at before who is served has a turn: ten thousand in one go would be 10 ms."""
BACKLOG = 4096
"""Connections that the kernel keeps for us while we are busy; Linux gives fewer if it is told so."""


@asynccontextmanager
async def listening(
    app: web.Application,
    listener: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    patience: Patience | None = None,
    hot: Mapping[str, Read] = HOT,
) -> AsyncIterator[Doorkeeper]:
    """Serve `app` on a socket that is bound already. A client that leaves cancels what runs for it.

    `hot`: the paths that models answer, which are served here and not by `app`.
    """
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("a runner that was set up has a server")
    loop = asyncio.get_running_loop()
    doorkeeper = Doorkeeper(manager, app.get(SERVICES), hot, loop)
    handshake_s = HANDSHAKE_S if tls is not None else None
    server = await loop.create_server(
        lambda: Connection(doorkeeper, loop), sock=listener, ssl=tls, ssl_handshake_timeout=handshake_s, backlog=BACKLOG
    )
    looking = loop.create_task(_look(doorkeeper, patience or Patience()))
    try:
        yield doorkeeper
    finally:
        looking.cancel()
        server.close()
        await _close(doorkeeper)
        await runner.cleanup()


async def _look(doorkeeper: Doorkeeper, patience: Patience) -> None:
    while True:
        await asyncio.sleep(patience.look_s)
        began_s, let_go = monotonic(), 0
        for connection in list(doorkeeper.connections):
            now_s = monotonic()
            if connection in doorkeeper.connections:
                let_go += connection.look(now_s, patience)
            if let_go >= LET_GO_AT_ONCE or now_s - began_s > LOOK_TURN_S:
                await asyncio.sleep(0)
                began_s, let_go = monotonic(), 0


async def _close(doorkeeper: Doorkeeper) -> None:
    """Idle connections end now, the others after their reply, or when they have had their time."""
    doorkeeper.is_closing = True
    for connection in list(doorkeeper.connections):
        if not connection.is_busy:
            connection.close()
    deadline_s = monotonic() + SHUTDOWN_S
    while any(connection.is_busy for connection in doorkeeper.connections):
        if monotonic() > deadline_s:
            break
        await asyncio.sleep(0.02)
    for connection in list(doorkeeper.connections):
        connection.abort()
