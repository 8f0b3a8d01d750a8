"""Middleware around every handler of aiohttp: request context, OpenAI's error object, headers of every reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

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
from sparewatt.core.ids import new_id
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import ERROR_CODE, error_reply
from sparewatt.edge.context import RequestContext
from sparewatt.edge.cors import is_open, is_preflight, preflight
from sparewatt.edge.settings import EdgeSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTEXT = web.RequestKey("context", RequestContext)
_INFERENCE_PREFIXES = ("/v1/chat/", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
_log = Logger("sparewatt.gateway")


class ErrorCounter(Protocol):
    """Counts errors of inference requests."""

    def count_error(self, code: str) -> None: ...


def context_of(request: web.Request) -> RequestContext:
    return request[CONTEXT]


def error_boundary(settings: EdgeSettings, errors: ErrorCounter, *, clock: Clock, rng: Rng) -> Middleware:
    """Give every request its context, and turn every exception into OpenAI's error object."""

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
    match error:
        case SparewattError():
            return error_reply(error)
        case web.HTTPException():
            return _framework_error(request, error)
        case web.RequestPayloadError():
            return error_reply(BadRequest("The body cannot be read: its encoding is broken."))
        case _:
            request_id = context_of(request).id
            _log.crash("request_crashed", error, request=request_id, route=route_of(request))
            return error_reply(InternalError(f"Something broke here. Please report it with the id {request_id}."))


def _framework_error(request: web.Request, error: web.HTTPException) -> web.Response:
    match error:
        case web.HTTPNotFound():
            hint = "" if f"{request.path}/".startswith("/v1/") else " The API begins at /v1."
            return error_reply(NotFound(f"There is no {request.path[:200]!r} here.{hint}"))
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            refused = MethodNotAllowed(f"{request.method[:20]} does not work here; {allowed} does.")
            return error_reply(refused, {"allow": allowed})
        case web.HTTPRequestEntityTooLarge():
            return error_reply(BodyTooLarge("The body is too large."))
        case web.HTTPUnprocessableEntity():
            return error_reply(UnprocessableContent("The request was understood but makes no sense."))
        case _:
            return error_reply(BadRequest(error.reason))
