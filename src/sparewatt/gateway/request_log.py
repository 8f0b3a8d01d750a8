"""A line in the log for every request that is over, where that is wanted. Off, it costs nothing: it is not there.

Ids, numbers and our own words. Never a prompt, a key, a body, or where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from sparewatt.core.ids import MatchId
from sparewatt.core.log import Log
from sparewatt.gateway.http import ASKED, ERROR_CODE, Handler
from sparewatt.gateway.services import services_of
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.protocol.link import LINK_PATH

_log = Log("sparewatt.requests")
REPLY = web.RequestKey("reply", web.StreamResponse)
CLIENT_LEFT = 499
"""As proxies write it: no reply was possible any more."""
_QUIET = frozenset({"/healthz", "/readyz", LINK_PATH})
"""Asked every few seconds, or open for days."""


class Request(NamedTuple):
    """What whoever speaks HTTP knows of one."""

    id: str
    route: str
    status: int
    took_s: float
    code: str | None = None


def request_log(settings: GatewaySettings) -> list[Middleware]:
    """To stand around all others; nothing where no log is wanted."""
    return [log_request] if settings.request_log else []


@web.middleware
async def log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    services = services_of(request)
    began_s = services.clock.now_s()
    reply: web.StreamResponse | None = None
    try:
        reply = await handler(request)
        return reply
    finally:
        if request.path not in _QUIET:
            reply = request.get(REPLY) if reply is None else reply
            match_id = reply.headers.get("x-sparewatt-match-id") if reply is not None else None
            record = services.dispatcher.record(MatchId(match_id)) if match_id is not None else None
            log_finished(_seen(request, reply, services.clock.now_s() - began_s), record)


async def remember_reply(request: web.Request, reply: web.StreamResponse) -> None:
    """As it begins: a client may leave before its end, and then nobody hands it on."""
    request[REPLY] = reply


def _seen(request: web.Request, reply: web.StreamResponse | None, took_s: float) -> Request:
    resource = request.match_info.route.resource
    return Request(
        id=asked.id if (asked := request.get(ASKED)) is not None else "",
        route=f"{request.method} {resource.canonical if resource else 'unknown'}",
        status=reply.status if reply is not None else CLIENT_LEFT,
        took_s=took_s,
        code=reply.get(ERROR_CODE) if reply is not None else None,
    )


def log_finished(request: Request, record: MatchRecord | None) -> None:
    _log.info("request_finished", **describe(request, record))


def describe(request: Request, record: MatchRecord | None) -> Mapping[str, object]:
    """The fields of its line. What became of an answer stands in its match, if there was one."""
    fields: dict[str, object] = {
        "request": request.id,
        "route": request.route,
        "status": request.status,
        "ms": round(request.took_s * 1000, 1),
    }
    code = request.code
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
    return fields | ({"code": code} if code is not None else {})
