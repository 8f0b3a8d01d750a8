"""From a sink to a client: headers, refusals, whole replies, and streams as they come."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.gateway.http import ERROR_CODE, error_headers, error_reply, json_reply
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.paying import limit_headers
from sparewatt.gateway.openai.streaming import has_begun, write_stream
from sparewatt.inference.admission.model import TicketState
from sparewatt.inference.admission.service import Ticket
from sparewatt.protocol.openai import error_body


async def answer(request: web.Request, errand: Errand, call: Call) -> web.StreamResponse:
    if not call.stream:
        await errand.sink.begun()
    elif not await has_begun(errand.sink):
        early = {"x-sparewatt-match-id": errand.job.match.id, **reply_headers(errand)}
        return await write_stream(request, errand.sink, early, consumed=errand.consumed, echo=call.echo)
    refused = refusal(errand)
    if refused is not None:
        return refused
    headers = reply_headers(errand)
    if call.stream:
        return await write_stream(request, errand.sink, headers, consumed=errand.consumed, echo=call.echo)
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
    """Of an answer: its type, its node and its cost, once the sink has begun, and what was not heeded."""
    return _own_headers(errand) | limit_headers(errand.tab)


def _own_headers(errand: Errand) -> dict[str, str]:
    return {**errand.sink.headers, **_queue_headers(errand.ticket), **_routing_headers(errand)}


def _routing_headers(errand: Errand) -> dict[str, str]:
    routing = errand.routing
    return routing.headers(server=errand.server()) if routing.unsure else routing.headers()


def _refused(error: SparewattError, ticket: Ticket, headers: Mapping[str, str]) -> web.Response:
    """Told no by admission: also where in line it stood, or would have."""
    place = {} if ticket.position is None else {"queue_position": ticket.position}
    reply = json_reply(error_body(error, **place), status=error.status, headers={**error_headers(error), **headers})
    reply[ERROR_CODE] = error.code
    return reply


def _queue_headers(ticket: Ticket | None) -> dict[str, str]:
    """Only for a job that had to wait."""
    if ticket is None or ticket.position is None:
        return {}
    return {
        "x-sparewatt-queue-position": str(ticket.position),
        "x-sparewatt-queued-ms": f"{ticket.queued_s * 1000:.0f}",
    }
