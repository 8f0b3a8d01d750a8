"""Middleware around every handler of aiohttp: request context, error objects, reply headers, request log.

The request log has one line for every finished request, if the operator sets `request_log`: ids, numbers and our own
words; never a prompt, a key, a body, or the client's address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    InternalError,
    MethodNotAllowed,
    NotFound,
    SparewattError,
    UnprocessableContent,
)
from sparewatt.core.ids import MatchId, new_id
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import RequestContext
from sparewatt.edge.bodies import ERROR_CODE, error_reply
from sparewatt.edge.cors import is_open, is_preflight, preflight
from sparewatt.edge.settings import EdgeSettings
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.protocol.error_shapes import shaped_error
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.traffic import TRAFFIC_PATH

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTEXT = web.RequestKey("context", RequestContext)
_INFERENCE_PREFIXES = (
    *("/v1/chat/", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"),
    *("/api/chat", "/api/generate", "/api/embed"),
)
REPLY = web.RequestKey("reply", web.StreamResponse)
CLIENT_LEFT = 499
"""The status that proxies log for a client that left before its reply."""
_QUIET = frozenset({"/healthz", "/readyz", LINK_PATH, TRAFFIC_PATH})
"""Requested every few seconds, or open for days."""
_log, _request_log = Logger("sparewatt.gateway"), Logger("sparewatt.requests")

FindRecord = Callable[[MatchId], MatchRecord | None]


class ErrorCounter(Protocol):
    """Counts errors of inference requests."""

    def count_error(self, code: str) -> None: ...


def context_of(request: web.Request) -> RequestContext:
    return request[CONTEXT]


def error_boundary(settings: EdgeSettings, errors: ErrorCounter, *, clock: Clock, rng: Rng) -> Middleware:
    """Give every request its context, and turn every exception into an error object."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[CONTEXT] = RequestContext(
            settings=settings,
            id=new_id("req", rng=rng),
            method=request.method,
            path=request.path,
            headers=request.headers,
            peer=request.remote or "unknown",
            began_s=clock.now_s(),
        )
        if is_preflight(request) and is_open(request.path):
            return preflight(request)
        try:
            reply = await handler(request)
        except Exception as error:  # the process boundary: the client gets a reply in any case
            if request.writer.output_size:
                raise  # part of a reply was sent; the server closes the socket
            reply = _reply_to(error, request)
            if "upgrade" in request.headers or not request.content.is_eof():
                # What follows a head with an upgrade is not read as HTTP any more. After a reply that came before the
                # end of the body the connection closes, and the client has to know.
                reply.force_close()
        code = reply.get(ERROR_CODE)
        if code is not None and request.method == "POST" and route_of(request).startswith(_INFERENCE_PREFIXES):
            errors.count_error(code)
        return reply

    return answer_errors


def reply_headers(clock: Clock) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """The signal handler that adds the headers of the request's context when a reply begins."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        context = request.get(CONTEXT)
        if context is not None:
            response.headers.update(context.reply_headers(clock.now_s()))

    return add


def route_of(request: web.Request) -> str:
    """The path pattern of the route table, for logs and counts: never text that the client made up."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


def _reply_to(error: Exception, request: web.Request) -> web.Response:
    """In the shape of the protocol that the client speaks."""
    known, context, headers = _known_error(error, request), context_of(request), {}
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["allow"] = _allowed(error)
    shaped = shaped_error(known, path=request.path, headers=request.headers, request_id=context.id)
    return error_reply(known, headers, shaped=shaped)


def _known_error(error: Exception, request: web.Request) -> SparewattError:
    match error:
        case SparewattError():
            return error
        case web.HTTPException():
            return _framework_error(request, error)
        case web.RequestPayloadError():
            return BadRequest("The body cannot be read: its encoding is broken.")
        case _:
            request_id = context_of(request).id
            _log.crash("request_crashed", error, request=request_id, route=route_of(request))
            return InternalError(f"Something broke here. Please report it with the id {request_id}.")


def _allowed(error: web.HTTPMethodNotAllowed) -> str:
    return ", ".join(sorted(error.allowed_methods))


def _framework_error(request: web.Request, error: web.HTTPException) -> SparewattError:
    match error:
        case web.HTTPNotFound():
            hint = "" if f"{request.path}/".startswith("/v1/") else " The API begins at /v1."
            return NotFound(f"There is no {request.path[:200]!r} here.{hint}")
        case web.HTTPMethodNotAllowed():
            return MethodNotAllowed(f"{request.method[:20]} does not work here; {_allowed(error)} does.")
        case web.HTTPRequestEntityTooLarge():
            return BodyTooLarge("The body is too large.")
        case web.HTTPUnprocessableEntity():
            return UnprocessableContent("The request was understood but makes no sense.")
        case _:
            return BadRequest(error.reason)


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
        code = code or record.error_code or record.stream_error_code
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
    _request_log.info("request_finished", **fields)
