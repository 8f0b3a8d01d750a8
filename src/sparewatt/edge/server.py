"""The listening server: TCP sockets, one `Connection` per client, periodic timeout checks, and shutdown."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from aiohttp import web

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import KIB
from sparewatt.edge.connection import Connection
from sparewatt.edge.connection_registry import CONNECTIONS_CLOSED_PER_TICK, ConnectionRegistry, LinkAcceptor, Refusals
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.settings import ClientTimeouts, EdgeSettings

SHUTDOWN_S = 2.0
HANDSHAKE_S = 10.0
"""For the TLS handshake: a few round trips."""
CHECK_TICK_S = 0.001
"""How long one tick checks connections: ten thousand at once would block the event loop for 10 ms."""
BACKLOG = 4096
"""Connections that the kernel accepts while the event loop is busy; Linux may allow fewer."""
CLIENT_UNSENT_BYTES_MAX = 64 * KIB
"""Bytes of a reply that the kernel buffers unsent; by default it takes 2.8 MB for a client that does not read."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound and listening socket. Raises StartupError. `shared`: with other processes of this gateway."""
    return start_listening(bind(host, port, shared=shared))


def start_listening(bound: socket.socket) -> socket.socket:
    """Let a bound socket accept connections from now on."""
    bound.listen(1024)
    bound.setblocking(False)
    return bound


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket with an address that no other user's process can take while it is open. Raises StartupError.

    With `shared` (SO_REUSEPORT) the kernel distributes new connections over the sockets that listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # inherited on accept: makes a slow reader's back-pressure visible here
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, CLIENT_UNSENT_BYTES_MAX)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StartupError(f"Cannot listen on {host}:{port} ({error.strerror}). Choose another --port.") from None
    return listener


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
    """Serve `app` on a bound socket. A client that disconnects cancels the handler that runs for it.

    `inference`: endpoints served without aiohttp. `links`: takes over the connections of nodes.
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
    """Close idle connections now, the others after their reply or after SHUTDOWN_S."""
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
