"""How a handler is declared: method and path, which keys may call it, what it reads, what it replies.

    @dataclass(slots=True, kw_only=True)
    class ModelEndpoints:
        rows: Iterable[NodeRow]

        @endpoint("GET /v1/models", access="inference")
        async def list_models(self, request: web.Request, principal: Principal) -> ModelList:
            \"\"\"List the models that can be requested right now.\"\"\"

The router and the OpenAPI document are made from these declarations, and requests are authenticated by them before the
handler runs. It returns a type of `protocol/api/`, which is encoded as JSON, or a `Reply` with headers or another
status. What is not JSON (a stream, a file, CSV) is aiohttp's own response.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType, UnionType
from typing import Any, Generic, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.accounts.rate_limits import RateCharge
from sparewatt.edge.auth import Authenticator, RequestContext
from sparewatt.edge.bodies import json_reply
from sparewatt.edge.middleware import context_of

Access = Literal["identified", "inference", "lease", "node", "admin", "operator"]
"""A key or session that is valid; that also has this scope; or an operator's.

All but `identified` charge the request to the rate limit. A handler with `identified` checks scopes by itself; where
it charges, it takes a `RequestLimiter`.
"""

_T = TypeVar("_T")
_PublicHandler = TypeVar("_PublicHandler", bound=Callable[[Any, web.Request], Awaitable[object]])
_Handler = TypeVar("_Handler", bound=Callable[[Any, web.Request, Principal], Awaitable[object]])
_SPEC = "__route_spec__"


class RequestLimiter(Protocol):
    """Rate limits of keys and addresses. Implemented by `Authenticator`."""

    def charge(self, context: RequestContext, *, tokens: int = 0) -> RateCharge: ...


@dataclass(frozen=True, slots=True)
class Reply(Generic[_T]):
    """A reply with headers or another status than the route's own."""

    value: _T
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """What a handler declares."""

    method: str
    path: str
    access: Access | Literal["public", "ticket"]
    """`ticket`: a key or a ticket of one use, which the handler checks; it gets no principal."""
    body: type | str | None = None
    """The type of its JSON body; or, where a gateway decodes only a part of it, the name of a schema of `openapi/`."""
    reply: Any = None
    """The type of its JSON reply, where the handler's annotation does not say it."""
    query: tuple[str, ...] = ()
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    """With the same reply: 200 where nothing had to be done."""
    streams: bool = False
    """Whether it may answer with server-sent events instead."""
    ndjson: bool = False
    """Whether it may answer with lines of JSON instead."""
    csv: bool = False
    """Whether `?format=csv` answers with a table instead."""
    content_type: str | None = None
    """Of a reply that is not JSON."""


@dataclass(frozen=True, slots=True)
class ApiRoute:
    spec: RouteSpec
    handler: Callable[..., Awaitable[object]]
    reply: Any
    """The type of the JSON reply; None if there is none."""
    tag: str
    """The noun: the folder of `api/` that it is in."""


@overload
def endpoint(
    line: str, *, access: Literal["public", "ticket"], **spec: Any
) -> Callable[[_PublicHandler], _PublicHandler]: ...


@overload
def endpoint(line: str, *, access: Access, **spec: Any) -> Callable[[_Handler], _Handler]: ...


def endpoint(line: str, *, access: Any, **spec: Any) -> Callable[[Any], Any]:
    """`line`: method and path. `spec`: the other fields of `RouteSpec`. A public handler gets no principal."""
    method, path = line.split(" ")

    def declare(handler: Any) -> Any:
        setattr(handler, _SPEC, RouteSpec(method=method, path=path, access=access, **spec))
        return handler

    return declare


def routes_of(groups: Iterable[object]) -> list[ApiRoute]:
    """The routes that these objects declare, in the order in which they are written."""
    return [
        replace(route, handler=getattr(group, route.handler.__name__))
        for group in groups
        for route in declared_routes(type(group))
    ]


def declared_routes(kind: type) -> Iterable[ApiRoute]:
    """The routes of a class, with handlers that are not bound yet: for the OpenAPI document."""
    for function in vars(kind).values():
        spec = getattr(function, _SPEC, None)
        if isinstance(spec, RouteSpec):
            reply = spec.reply if spec.reply is not None else json_type(get_type_hints(function).get("return"))
            yield ApiRoute(spec, function, reply, tag=kind.__module__.split(".")[2])


def json_type(annotation: Any) -> Any:
    """What of a handler's return annotation is JSON: without aiohttp's responses, and without the `Reply` around it."""
    if get_origin(annotation) is Reply:
        return get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        members = [kind for kind in map(json_type, get_args(annotation)) if kind is not None]
        return Union[tuple(members)] if members else None  # noqa: UP007 (made at run time)
    if annotation in (None, NoneType) or (inspect.isclass(annotation) and issubclass(annotation, web.StreamResponse)):
        return None
    return annotation


def aiohttp_route(route: ApiRoute, auth: Authenticator) -> web.RouteDef:
    spec, handler = route.spec, route.handler

    async def handle(request: web.Request) -> web.StreamResponse:
        match spec.access:
            case "public" | "ticket":
                reply = await handler(request)
            case access:
                reply = await handler(request, await _authenticate(request, access, auth))
        if isinstance(reply, web.StreamResponse):
            return reply
        if isinstance(reply, Reply):
            return json_reply(reply.value, status=reply.status or spec.status, headers=reply.headers)
        return json_reply(reply, status=spec.status)

    return web.route(spec.method, spec.path, handle)


async def _authenticate(request: web.Request, access: Access, auth: Authenticator) -> Principal:
    """Raises NotAuthenticated, NotAllowed, OperatorsOnly or RateLimited."""
    context = context_of(request)
    match access:
        case "identified":
            return await auth.identify(context)
        case "operator":
            return await auth.authenticate_operator(context)
        case scope:
            return await auth.authenticate(context, scope)
