"""From a sink to a client: headers, refusals, whole replies, and streams as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S
from sparewatt.gateway.http import error_headers, error_reply, json_reply
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.paying import limit_headers
from sparewatt.inference.admission.model import TicketState
from sparewatt.inference.admission.service import Ticket
from sparewatt.protocol.openai import error_body

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: no event for whoever reads the stream, and a sign of life for whatever stands in between."""


async def answer(request: web.Request, errand: Errand, call: Call) -> web.StreamResponse:
    await errand.sink.begun()
    refused = refusal(errand)
    if refused is not None:
        return refused
    headers = reply_headers(errand)
    if call.stream:
        return await _stream(request, errand, headers)
    body = await errand.sink.take_all()
    try:
        return web.Response(body=body if call.reshape is None else call.reshape(body), headers=headers)
    except ValueError as error:
        return error_reply(JobFailed(f"The node's answer cannot be read: {error}."), headers)


def refusal(errand: Errand) -> web.Response | None:
    """The error that it came to, once the sink has begun; None if there is an answer."""
    error, ticket = errand.sink.error, errand.ticket
    if error is None:
        return None
    headers = _own_headers(errand)
    if ticket is not None and ticket.state is TicketState.REFUSED:
        return _refused(error, ticket, headers)
    return error_reply(error, headers)


def reply_headers(errand: Errand) -> dict[str, str]:
    """Of an answer, once the sink has begun: its type, its node, its cost, and what was not heeded."""
    return _own_headers(errand) | limit_headers(errand.tab)


def _own_headers(errand: Errand) -> dict[str, str]:
    return {**errand.sink.headers, **_queue_headers(errand.ticket), **errand.routing.headers()}


def _refused(error: SparewattError, ticket: Ticket, headers: Mapping[str, str]) -> web.Response:
    """Told no by admission: also where in line it stood, or would have."""
    place = {} if ticket.position is None else {"queue_position": ticket.position}
    return json_reply(error_body(error, **place), status=error.status, headers={**error_headers(error), **headers})


def _queue_headers(ticket: Ticket | None) -> dict[str, str]:
    """Only for a job that had to wait."""
    if ticket is None or ticket.position is None:
        return {}
    return {
        "x-sparewatt-queue-position": str(ticket.position),
        "x-sparewatt-queued-ms": f"{ticket.queued_s * 1000:.0f}",
    }


async def _stream(request: web.Request, errand: Errand, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})
    await response.prepare(request)
    try:
        await _write_out(response, errand)
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()  # the client is gone or stuck: what is queued for it would wait for ever
    return response


async def _next(errand: Errand) -> bytes | None:
    """What came next; nothing if it was silent for too long, None at the end."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            return await errand.sink.take()
    except TimeoutError:
        return b""


async def _write_out(response: web.StreamResponse, errand: Errand) -> None:
    while (data := await _next(errand)) is not None:
        async with asyncio.timeout(CLIENT_WRITE_S):
            await response.write(data or KEEP_ALIVE)
        if data:
            errand.consumed(len(data))
    async with asyncio.timeout(CLIENT_WRITE_S):
        await response.write_eof()
