"""The HTTP front end: aiohttp's protocol, with our own words for what fails below the routes.

aiohttp answers malformed HTTP in plain text that repeats the offending bytes, and logs them: those may be a key.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from sparewatt.core.errors import BadRequest, Internal
from sparewatt.core.ids import new_id
from sparewatt.core.rng import SystemRng
from sparewatt.gateway.http import SERVER, error_reply

SHUTDOWN_S = 2.0
HANDSHAKE_S = 10.0
"""For a client's half of the TLS handshake: a few round trips."""


class FrontProtocol(web.RequestHandler):
    """One connection."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 (may hold what the client sent)
        message: str | None = None,  # noqa: ARG002 (likewise)
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun, an error cannot follow")
        error = Internal("Something broke here.") if status >= 500 else BadRequest("This is not a valid HTTP request.")
        reply = error_reply(error, {"x-request-id": new_id("req", rng=SystemRng()), "server": SERVER})
        reply.force_close()
        return reply

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """After a reply aiohttp reads on to the body's end, and stumbles again over one in a broken encoding.

        The client has its answer by then, and the connection is closed: nothing here is at fault.
        """
        if isinstance(kw.get("exc_info"), web.RequestPayloadError):
            self.log_debug("broken_body")
        else:
            super().log_exception(*args, **kw)


@asynccontextmanager
async def listening(
    app: web.Application, listener: socket.socket, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve `app` on a socket that is bound already. A client that leaves cancels its handler."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("a runner that was set up has a server")
    loop = asyncio.get_running_loop()

    def accept() -> FrontProtocol:
        return FrontProtocol(manager, loop=loop, access_log=None)  # type: ignore[arg-type]  # None turns it off

    patience_s = HANDSHAKE_S if tls is not None else None
    server = await loop.create_server(accept, sock=listener, ssl=tls, ssl_handshake_timeout=patience_s)
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()
