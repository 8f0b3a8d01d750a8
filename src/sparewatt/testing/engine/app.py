"""The engine as an aiohttp application on a loopback port: its routes, the shape of its errors, start and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from sparewatt.core.clock import Clock
from sparewatt.core.errors import SparewattError
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.testing.engine.engine import Engine
from sparewatt.testing.engine.output import json_response
from sparewatt.testing.engine.replies import ErrorBody, ErrorDetail, encode, error_body
from sparewatt.testing.engine.settings import EngineSettings

STOP_S = 0.05
"""What a stopping engine waits for open requests before it cuts them off: tests stop engines by the hundred."""

BACKLOG = 1024
"""Connections that may arrive within one turn of the loop."""


@web.middleware
async def errors_as_objects(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error leaves in OpenAI's shape, the framework's own included."""
    try:
        return await handler(request)
    except SparewattError as error:
        return json_response(encode(error_body(error)), status=error.status)
    except web.HTTPException as error:
        detail = ErrorDetail(error.reason, "invalid_request_error", None, error.reason.lower().replace(" ", "_"))
        return json_response(encode(ErrorBody(detail)), status=error.status)


def make_app(engine: Engine) -> web.Application:
    app = web.Application(middlewares=[errors_as_objects], client_max_size=REQUEST_BODY_BYTES_MAX)
    app.add_routes(
        [
            web.post("/v1/chat/completions", engine.chat),
            web.post("/v1/completions", engine.complete),
            web.post("/v1/embeddings", engine.embed),
            web.get("/v1/models", engine.models),
            web.get("/v1/models/{name:.+}", engine.model),
            web.get("/health", engine.health),
            web.get("/props", engine.props),
            web.get("/slots", engine.slots),
            web.post("/apply-template", engine.apply_template),
            web.post("/tokenize", engine.tokenize),
            web.get("/engine/stats", engine.show_stats),
            web.get("/engine/faults", engine.show_faults),
            web.post("/engine/faults", engine.add_fault),
            web.delete("/engine/faults", engine.clear_faults),
        ]
    )
    return app


@asynccontextmanager
async def running_engine(
    settings: EngineSettings | None = None, *, clock: Clock | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve on a loopback port inside this process, and give the base URL: `http://127.0.0.1:PORT`."""
    app = make_app(Engine(settings or EngineSettings(), clock=clock))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=BACKLOG).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
