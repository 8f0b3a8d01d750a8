"""A server that gives recorded answers, with the deterministic engine behind it for the jobs. It can be broken.

The engine is the only thing here that makes up answers; what the servers say of themselves was written down from them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from sparewatt.machine.spawn import free_port
from sparewatt.testing import EngineSettings, InstantClock, running_engine

FOLDER = Path(__file__).parent / "recorded"


@dataclass(slots=True)
class Recording:
    """What one kind of server answers; `changed` stands before what was recorded."""

    name: str
    routes: dict[str, dict[str, Any]]
    unknown: dict[str, Any]
    changed: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    hangs: bool = False
    is_down: bool = False

    def answer(self, path: str) -> tuple[int, bytes]:
        if path in self.changed:
            return self.changed[path]
        if (route := self.routes.get(path)) is not None:
            return int(route["status"]), (FOLDER / self.name / route["file"]).read_bytes()
        return int(self.unknown["status"]), str(self.unknown["body"]).encode()

    def read(self, path: str) -> Any:
        return json.loads(self.answer(path)[1])

    def change(self, path: str, value: Any, *, status: int = 200) -> None:
        self.changed[path] = (status, value if isinstance(value, bytes) else json.dumps(value).encode())


def recording(name: str) -> Recording:
    told = json.loads((FOLDER / name / "answers.json").read_text())
    return Recording(name, told["routes"], told["unknown"])


@asynccontextmanager
async def serving(recorded: Recording, *models: str) -> AsyncIterator[str]:
    """The recorded server on a loopback port; chats with `models` go to the engine. Gives its address."""
    settings = EngineSettings(models=models or ("a-model",), slots=4)
    async with running_engine(settings, clock=InstantClock()) as engine, aiohttp.ClientSession() as session:
        app = web.Application()

        async def handle(request: web.Request) -> web.StreamResponse:
            return await _handle(request, recorded, engine, session)

        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()


async def _handle(
    request: web.Request, recorded: Recording, engine: str, session: aiohttp.ClientSession
) -> web.StreamResponse:
    if recorded.is_down:
        assert request.transport is not None
        request.transport.close()
        return web.Response()
    if recorded.hangs:
        await asyncio.Event().wait()
    if request.method == "POST" and request.path.startswith("/v1/"):
        return await _pass_on(request, engine, session)
    path = request.path
    if request.method == "POST":
        asked = json.loads(await request.read())
        path = f"POST {path} {asked.get('model', '')}"
    status, body = recorded.answer(path)
    kind = "application/json" if body[:1] in (b"{", b"[") else "text/plain"
    return web.Response(status=status, body=body, content_type=kind)


async def _pass_on(request: web.Request, engine: str, session: aiohttp.ClientSession) -> web.StreamResponse:
    async with session.post(engine + request.path, data=await request.read()) as reply:
        response = web.StreamResponse(status=reply.status, headers={"content-type": reply.headers["content-type"]})
        await response.prepare(request)
        async for chunk in reply.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response
