"""Writing a stream to a client: its head, its bytes as they come, a comment in every long silence, and its end.

Until something has come for a while, nothing is sent, so that a failure is a proper error reply. After that the head
goes out: the client knows that it is being served, and a failure is the stream's last event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S
from sparewatt.gateway.openai.echo import Echo
from sparewatt.gateway.openai.sink import KEEP_ALIVE, BufferedSink

STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


async def has_begun(sink: BufferedSink) -> bool:
    """Whether the reply has started or failed. If not, the head must go out before it is known."""
    return await sink.begun_within(KEEP_ALIVE_S)


async def write_stream(
    request: web.Request,
    sink: BufferedSink,
    headers: Mapping[str, str],
    *,
    consumed: Callable[[int], None],
    echo: Echo | None = None,
) -> web.StreamResponse:
    """`consumed` is told of every byte of the reply that the client has taken. `echo`: what adds to it on its way."""
    response = web.StreamResponse(headers={**STREAM_HEADERS, **headers})
    await response.prepare(request)
    sink.keep_alive(KEEP_ALIVE_S)
    try:
        await _write_out(response, sink, consumed, echo)
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()  # the client is gone or stuck: what is queued for it would wait for ever
    finally:
        sink.close()
    return response


async def _write_out(
    response: web.StreamResponse, sink: BufferedSink, consumed: Callable[[int], None], echo: Echo | None
) -> None:
    while (data := await sink.take()) is not None:
        async with asyncio.timeout(CLIENT_WRITE_S):
            await response.write(data if echo is None or data is KEEP_ALIVE else echo.feed(data))
        if data is not KEEP_ALIVE:
            consumed(len(data))
    async with asyncio.timeout(CLIENT_WRITE_S):
        if echo is not None:
            await response.write(echo.rest())
        await response.write_eof()
