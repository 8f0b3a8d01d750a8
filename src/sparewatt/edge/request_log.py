"""The request log: one line for every finished request, if the operator sets `request_log`.

A line has ids, numbers and our own words; never a prompt, a key, a body, or the client's address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from sparewatt.core.clock import Clock
from sparewatt.core.ids import MatchId
from sparewatt.core.log import Logger
from sparewatt.edge.bodies import ERROR_CODE
from sparewatt.edge.middleware import CONTEXT, Handler, route_of
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.protocol.link.frames import LINK_PATH

_log = Logger("sparewatt.requests")
REPLY = web.RequestKey("reply", web.StreamResponse)
CLIENT_LEFT = 499
"""The status that proxies log for a client that left before its reply."""
_QUIET = frozenset({"/healthz", "/readyz", LINK_PATH})
"""Requested every few seconds, or open for days."""

FindRecord = Callable[[MatchId], MatchRecord | None]


class RequestLine(NamedTuple):
    """A finished request, without what its match record adds."""

    id: str
    route: str
    status: int
    took_s: float
    code: str | None = None


def request_log(find_record: FindRecord, *, clock: Clock) -> Middleware:
    """The outermost middleware."""

    @web.middleware
    async def log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        began_s = clock.now_s()
        reply: web.StreamResponse | None = None
        try:
            reply = await handler(request)
            return reply
        finally:
            if request.path not in _QUIET:
                reply = request.get(REPLY) if reply is None else reply
                match_id = reply.headers.get("x-sparewatt-match-id") if reply is not None else None
                record = find_record(MatchId(match_id)) if match_id is not None else None
                log_finished(_line_of(request, reply, clock.now_s() - began_s), record)

    return log_request


async def remember_reply(request: web.Request, reply: web.StreamResponse) -> None:
    """A signal handler for replies that begin: if the client leaves before the end, no handler returns the reply."""
    request[REPLY] = reply


def _line_of(request: web.Request, reply: web.StreamResponse | None, took_s: float) -> RequestLine:
    context = request.get(CONTEXT)
    return RequestLine(
        id=context.id if context is not None else "",
        route=f"{request.method} {route_of(request)}",
        status=reply.status if reply is not None else CLIENT_LEFT,
        took_s=took_s,
        code=reply.get(ERROR_CODE) if reply is not None else None,
    )


def log_finished(line: RequestLine, record: MatchRecord | None) -> None:
    """`record`: the match record of an inference request."""
    fields: dict[str, object] = {
        "request": line.id,
        "route": line.route,
        "status": line.status,
        "ms": round(line.took_s * 1000, 1),
    }
    code = line.code
    if record is not None:
        code = code or record.error_code or record.broke
        last = record.attempts[-1] if record.attempts else None
        fields |= {
            "match": record.id,
            "model": record.decision.job.model,
            "outcome": record.outcome.value,
            "attempts": len(record.attempts),
            "node": last.node_id if last is not None else None,
            "first_token_ms": record.first_token_ms,
            "tokens": sum(attempt.tokens for attempt in record.attempts),
        }
    if code is not None:
        fields["code"] = code
    _log.info("request_finished", **fields)
