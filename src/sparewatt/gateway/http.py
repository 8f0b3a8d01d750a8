"""What all routes share: bounded bodies, the error object, request ids, and who is asking."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from sparewatt.accounts.limits import Charge
from sparewatt.accounts.principal import Principal, Scope
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    BodyTooSlow,
    Internal,
    InvalidField,
    InvalidJson,
    MethodNotAllowed,
    NotFound,
    SparewattError,
    Unprocessable,
)
from sparewatt.core.ids import new_id
from sparewatt.core.limits import CLIENT_BODY_S, READ_PER_TURN_BYTES, RETRY_AFTER_S_MAX
from sparewatt.core.log import Log
from sparewatt.core.rng import SystemRng
from sparewatt.gateway import asking
from sparewatt.gateway.asking import Asked
from sparewatt.gateway.cors import is_open, is_preflight, preflight
from sparewatt.gateway.services import services_of
from sparewatt.protocol.crowding import Crowd
from sparewatt.protocol.openai import error_body

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ASKED = web.RequestKey("asked", Asked)
ERROR_CODE = web.ResponseKey("error_code", str)
_ANSWERS = ("/v1/chat/", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
"""How the routes begin at which models answer."""
_log = Log("sparewatt.gateway")
_rng = SystemRng()
_T = TypeVar("_T")


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )


def error_reply(error: SparewattError, headers: Mapping[str, str] | None = None) -> web.Response:
    reply = json_reply(error_body(error), status=error.status, headers={**error_headers(error), **(headers or {})})
    reply[ERROR_CODE] = error.code
    return reply


def error_headers(error: SparewattError) -> dict[str, str]:
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        wait_s = min(error.retry_after_s, RETRY_AFTER_S_MAX)
        headers |= {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}
    if not error.retryable and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        headers["x-should-retry"] = "false"
    return headers


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into OpenAI's error object, and every reply into one that carries a request id."""
    request[ASKED] = Asked(
        services_of(request),
        id_=new_id("req", rng=_rng),
        method=request.method,
        path=request.path,
        headers=request.headers,
        peer=request.remote or "unknown",
    )
    if is_preflight(request) and is_open(request.path):
        return preflight(request)
    try:
        reply = await handler(request)
    except Exception as error:  # the process boundary: whatever it is, the client gets an answer
        if request.writer.output_size:
            raise  # it has half of one already; the server closes the socket
        reply = _answer(request, error)
    _count_error(request, reply)
    return reply


def _count_error(request: web.Request, reply: web.StreamResponse) -> None:
    """Of requests for an answer, for who watches the network."""
    code = reply.get(ERROR_CODE)
    if code is not None and request.method == "POST" and _route(request).startswith(_ANSWERS):
        services_of(request).history.tally.note_error(code)


def _answer(request: web.Request, error: Exception) -> web.Response:
    match error:
        case SparewattError():
            return error_reply(error)
        case web.HTTPException():
            return _framework_error(request, error)
        case web.RequestPayloadError():
            return error_reply(BadRequest("The body cannot be read: its encoding is broken."))
        case _:
            _log.crash("request_crashed", request=request[ASKED].id, route=_route(request))
            return error_reply(Internal(f"Something broke here. Please report it with the id {request[ASKED].id}."))


def _framework_error(request: web.Request, error: web.HTTPException) -> web.Response:
    match error:
        case web.HTTPNotFound():
            return error_reply(NotFound(f"There is no {request.path[:200]!r} here.{_where_it_is(request.path)}"))
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            said = MethodNotAllowed(f"{request.method[:20]} does not work here; {allowed} does.")
            return error_reply(said, {"allow": allowed})
        case web.HTTPRequestEntityTooLarge():
            return error_reply(BodyTooLarge("The body is too large."))
        case web.HTTPUnprocessableEntity():
            return error_reply(Unprocessable("The request was understood but makes no sense."))
        case _:
            return error_reply(BadRequest(error.reason))


def _where_it_is(path: str) -> str:
    return "" if f"{path}/".startswith("/v1/") else " The API begins at /v1."


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


async def add_own_headers(request: web.Request, response: web.StreamResponse) -> None:
    asked = request.get(ASKED)
    if asked is not None:
        response.headers.update(asking.own_headers(asked))


async def authenticate(request: web.Request, scope: Scope) -> Principal:
    """Who is asking, by key or by cookie, and whether they may. Raises NotAuthenticated, NotAllowed or RateLimited."""
    return await asking.authenticate(request[ASKED], scope)


async def authenticate_operator(request: web.Request) -> Principal:
    return await asking.authenticate_operator(request[ASKED])


def admit_rate(request: web.Request, *, tokens: int = 0) -> Charge:
    """Charge a request to its key and its address, or raise RateLimited."""
    return asking.admit_rate(request[ASKED], tokens=tokens)


async def identify(request: web.Request) -> Principal:
    return await asking.identify(request[ASKED])


def address_of(request: web.Request) -> str:
    return request[ASKED].address


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large, or to hold too much for a decoder."""
    too_large = BodyTooLarge(f"The body is larger than {limit // (1 << 20)} MiB." if limit >= 1 << 20 else "Too large.")
    if request.content_length is not None and request.content_length > limit:
        raise too_large
    body, size, crowd = [], 0, Crowd()
    try:
        async with asyncio.timeout(CLIENT_BODY_S):
            async for piece in request.content.iter_chunked(READ_PER_TURN_BYTES):
                body.append(piece)
                size += len(piece)
                if size > limit:
                    raise too_large
                crowd.refuse(piece)
                if len(piece) == READ_PER_TURN_BYTES:
                    await asyncio.sleep(0)  # there is more: others have a turn
    except TimeoutError:
        raise BodyTooSlow(f"The body was not here after {CLIENT_BODY_S:.0f} s.") from None
    return b"".join(body)


async def read_json(request: web.Request, shape: type[_T], *, limit: int) -> _T:
    """A small JSON body of a known shape. Raises InvalidJson or InvalidField."""
    body = await read_body(request, limit=limit)
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise InvalidField(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}") from None


def whole_number(request: web.Request, name: str, *, default: int, most: int) -> int:
    """From the query string, from 1 to `most`. Raises InvalidField."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
        raise InvalidField(f"'{name}' is a number from 1 to {most:,}.", param=name)
    return int(text)


def listing(items: list[Any]) -> dict[str, Any]:
    return {"object": "list", "data": items}
