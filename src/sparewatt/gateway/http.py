"""What all routes share: bounded bodies, the error object, request ids, and who is asking."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from sparewatt.accounts.limits import Charge, Meter
from sparewatt.accounts.principal import Principal, Scope, by_key, by_session, require_operator, require_scope
from sparewatt.accounts.sessions import CSRF_HEADER, refuse_foreign_origin, refuse_forgery
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    BodyTooSlow,
    Internal,
    InvalidField,
    InvalidJson,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    SparewattError,
    Unprocessable,
)
from sparewatt.core.ids import new_id
from sparewatt.core.limits import CLIENT_BODY_S, RETRY_AFTER_S_MAX
from sparewatt.core.log import Log
from sparewatt.core.rng import SystemRng
from sparewatt.gateway.cookies import cookie_name
from sparewatt.gateway.cors import cors_headers, is_open, is_preflight, preflight
from sparewatt.gateway.proxies import client_address
from sparewatt.gateway.services import Services, services_of
from sparewatt.protocol.openai import error_body

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST_ID = web.RequestKey("request_id", str)
BEGAN_S = web.RequestKey("began_s", float)
METER = web.RequestKey("meter", Meter)
ERROR_CODE = web.ResponseKey("error_code", str)
SERVER = "sparewatt"
"""What serves, and not which releases of what it is made of."""
_HTTPS_ONLY = "max-age=31536000"
"""Where we hold the certificate ourselves; behind a proxy that is the proxy's to say. For a year."""
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
    request[REQUEST_ID] = new_id("req", rng=_rng)
    request[BEGAN_S] = services_of(request).clock.now_s()
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
            _log.crash("request_crashed", request=request[REQUEST_ID], route=_route(request))
            return error_reply(Internal(f"Something broke here. Please report it with the id {request[REQUEST_ID]}."))


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
    """On every reply: its id, how long it took to begin, what is left of the key's limits, and what pages may see."""
    services = services_of(request)
    now_s = services.clock.now_s()
    response.headers["server"] = SERVER
    if services.settings.has_tls:
        response.headers["strict-transport-security"] = _HTTPS_ONLY
    response.headers["x-request-id"] = request.get(REQUEST_ID, "unknown")
    response.headers["openai-processing-ms"] = f"{(now_s - request.get(BEGAN_S, now_s)) * 1000:.0f}"
    response.headers.update(cors_headers(request))
    meter = request.get(METER)
    if meter is not None:
        response.headers.update(meter.headers(now_s))


async def authenticate(request: web.Request, scope: Scope) -> Principal:
    """Who is asking, by key or by cookie, and whether they may. Raises NotAuthenticated, NotAllowed or RateLimited."""
    who = await identify(request)
    require_scope(who, scope)
    admit_rate(request)
    return who


async def authenticate_operator(request: web.Request) -> Principal:
    who = await identify(request)
    require_operator(who)
    admit_rate(request)
    return who


def admit_rate(request: web.Request, *, tokens: int = 0) -> Charge:
    """Charge a request to its key and its address, or raise RateLimited."""
    services = services_of(request)
    limits, now_s = services.limits, services.clock.now_s()
    address = limits.address_meter(address_of(request, services), now_s=now_s)
    denial = limits.admit(request[METER], address, tokens=tokens, now_s=now_s)
    if denial is not None:
        wait_s = max(1.0, denial.retry_after_s)
        raise RateLimited(
            f"This {denial.who} has used up its {denial.what} per minute. Come back in {wait_s:.0f} s.",
            retry_after_s=wait_s,
        )
    return Charge(request[METER], address, tokens)


async def identify(request: web.Request) -> Principal:
    """Who is asking. From here on the reply tells what is left of their limits, whatever else is wrong with it."""
    who = await _find_principal(request)
    services, key = services_of(request), who.key
    request[METER] = services.limits.key_meter(
        who.key_id,
        now_s=services.clock.now_s(),
        requests_per_min=key.requests_per_min if key is not None else None,
        tokens_per_min=key.tokens_per_min if key is not None else None,
    )
    return who


async def _find_principal(request: web.Request) -> Principal:
    """A key needs no database; it comes first, also where a browser sends its cookie along."""
    services = services_of(request)
    authorization = request.headers.get("authorization")
    token = None if authorization else request.cookies.get(cookie_name(services.settings))
    if token is None:
        return by_key(services.ring.authenticate(authorization, unix_s=services.clock.unix_s()))
    session = await services.sessions.find(token)
    refuse_foreign_origin(request.headers.get("origin"), ours=services.origins)
    refuse_forgery(token=token, method=request.method, csrf=request.headers.get(CSRF_HEADER))
    return by_session(session)


def address_of(request: web.Request, services: Services) -> str:
    """Where a request comes from: the other end of the socket, or what our own proxy says it was."""
    peer, settings = request.remote or "unknown", services.settings
    if not settings.behind_proxy:
        return peer
    return client_address(peer, request.headers.get("x-forwarded-for", ""), trusted=settings.trusted_proxies)


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large."""
    too_large = BodyTooLarge(f"The body is larger than {limit // (1 << 20)} MiB." if limit >= 1 << 20 else "Too large.")
    if request.content_length is not None and request.content_length > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(CLIENT_BODY_S):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise BodyTooSlow(f"The body was not here after {CLIENT_BODY_S:.0f} s.") from None
    return bytes(body)


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
