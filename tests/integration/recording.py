"""A proxy before a model server that keeps what was asked and what was answered, so that a test can compare bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from tests.processes import wait_until

_PASSED_ON = ("content-type",)


@dataclass(slots=True)
class Exchange:
    path: str
    asked: bytes
    answered: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Recorder:
    upstream: str
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """A client that goes away takes its request to the server with it."""
        exchange = Exchange(request.path, await request.read())
        if request.method == "POST":
            self.exchanges.append(exchange)
        url = self.upstream + request.path_qs
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
            session.request(request.method, url, data=exchange.asked or None, headers=_kept(request.headers)) as reply,
        ):
            response = web.StreamResponse(status=reply.status, headers=_kept(reply.headers))
            await response.prepare(request)
            async for chunk in reply.content.iter_any():
                exchange.answered += chunk
                await response.write(chunk)
            await response.write_eof()
            return response


def _kept(headers: object) -> dict[str, str]:
    found = dict(headers)  # type: ignore[call-overload]
    return {name: value for name, value in found.items() if name.lower() in _PASSED_ON}


@contextmanager
def recording(upstream: str) -> Iterator[Recorder]:
    """It runs in a thread of its own: a test waits in many ways."""
    recorder = Recorder(upstream)
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=REQUEST_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", recorder.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        recorder.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        wait_until(lambda: bool(recorder.url), "the proxy does not listen")
        yield recorder
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
