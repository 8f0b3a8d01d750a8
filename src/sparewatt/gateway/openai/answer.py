"""What a reply says beside the answer: which node, what it cost, where in line it stood; or why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from sparewatt.core.errors import SparewattError
from sparewatt.gateway.http import ERROR_CODE, error_headers, json_reply
from sparewatt.gateway.openai.errand import Errand, S
from sparewatt.gateway.openai.paying import limit_headers
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.inference.admission.model import TicketState
from sparewatt.inference.admission.service import Ticket
from sparewatt.protocol.openai import error_body


def refusal_of(
    errand: Errand[S], error: SparewattError, said: Mapping[str, str]
) -> tuple[dict[str, object], dict[str, str]]:
    """The error object that an errand came to, and its headers; with where in line it stood, if admission said no."""
    ticket = errand.ticket
    was_turned_away = ticket is not None and ticket.state is TicketState.REFUSED and ticket.position is not None
    place = {"queue_position": ticket.position} if was_turned_away and ticket is not None else {}
    return error_body(error, **place), {**error_headers(error), **_headers_of(errand, said)}


def refusal(errand: Errand[BufferedSink]) -> web.Response | None:
    """The error that it came to, once the sink has begun; None if there is an answer."""
    error = errand.sink.error
    if error is None:
        return None
    body, headers = refusal_of(errand, error, errand.sink.headers)
    reply = json_reply(body, status=error.status, headers=headers)
    reply[ERROR_CODE] = error.code
    return reply


def reply_headers(errand: Errand[S], said: Mapping[str, str]) -> dict[str, str]:
    """Of an answer: its type, its node and its cost (`said`), where it stood in line, and what was not heeded."""
    headers = _headers_of(errand, said)
    tab = errand.tab
    return headers if tab is None or not tab.was_limited else headers | limit_headers(tab)


def _headers_of(errand: Errand[S], said: Mapping[str, str]) -> dict[str, str]:
    routing, ticket = errand.routing, errand.ticket
    headers = dict(said)
    if ticket is not None and ticket.position is not None:
        headers |= _queue_headers(ticket)
    return headers | (routing.headers(server=errand.server()) if routing.unsure else routing.headers())


def _queue_headers(ticket: Ticket) -> dict[str, str]:
    """Only for a job that had to wait."""
    return {
        "x-sparewatt-queue-position": str(ticket.position),
        "x-sparewatt-queued-ms": f"{ticket.queued_s * 1000:.0f}",
    }
