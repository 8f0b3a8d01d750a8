"""How a handler is declared: method and path, what it reads, what it replies. The routes and OpenAPI are made of it.

    class ModelEndpoints:
        def __init__(self, *, auth: Authenticator, …) -> None: …

        @get("/v1/models")
        async def list_models(self, request: web.Request) -> ModelList:
            \"\"\"List the models that can be asked for right now.\"\"\"

A handler returns a type of `protocol/api/`, which is encoded as JSON; with headers or another status it returns a
`Reply` of one; what is no JSON (a stream, a file, CSV) is aiohttp's own response.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from aiohttp import web

from sparewatt.edge.bodies import json_reply

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Awaitable[object]])
_SPEC = "__route_spec__"


@dataclass(frozen=True, slots=True)
class Reply(Generic[_T]):
    """A reply with headers or another status than the route's own."""

    value: _T
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """What the OpenAPI document says of a route."""

    method: str
    path: str
    body: type | str | None = None
    """The type of its JSON body; or, where a gateway decodes only a part of it, the name of a schema of `openapi/`."""
    reply: Any = None
    """The type of its JSON reply, where the handler's annotation does not say it."""
    query: tuple[str, ...] = ()
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    """With the same reply: 200 where nothing had to be done."""
    is_public: bool = False
    """Whether it needs neither a key nor a session."""
    streams: bool = False
    """Whether it may answer with server-sent events instead."""
    csv: bool = False
    """Whether `?format=csv` answers with a table instead."""
    content_type: str | None = None
    """Of what is no JSON."""
    summary: str | None = None
    """Where the handler's docstring does not say it."""


class ApiRoute(NamedTuple):
    spec: RouteSpec
    handler: Callable[..., Awaitable[object]]
    reply: Any
    """The type of the JSON reply; None if there is none."""
    tag: str
    """The noun: the folder of `api/` that it is in."""


def _route(method: str, path: str, **spec: Any) -> Callable[[_F], _F]:
    def declare(handler: _F) -> _F:
        setattr(handler, _SPEC, RouteSpec(method=method, path=path, **spec))
        return handler

    return declare


def get(path: str, **spec: Any) -> Callable[[_F], _F]:
    """`spec`: the fields of `RouteSpec`."""
    return _route("GET", path, **spec)


def post(path: str, **spec: Any) -> Callable[[_F], _F]:
    return _route("POST", path, **spec)


def patch(path: str, **spec: Any) -> Callable[[_F], _F]:
    return _route("PATCH", path, **spec)


def delete(path: str, **spec: Any) -> Callable[[_F], _F]:
    return _route("DELETE", path, **spec)


def routes_of(groups: Iterable[object]) -> list[ApiRoute]:
    """The routes that these objects declare, in the order in which they are written."""
    return [
        route._replace(handler=getattr(group, route.handler.__name__))
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
        found = [json_type(member) for member in get_args(annotation)]
        left = [member for member in found if member is not None]
        return left[0] if len(left) == 1 else Union[tuple(left)] if left else None  # noqa: UP007 (made at run time)
    if annotation in (None, NoneType) or (inspect.isclass(annotation) and issubclass(annotation, web.StreamResponse)):
        return None
    return annotation


def aiohttp_route(route: ApiRoute) -> web.RouteDef:
    async def handle(request: web.Request) -> web.StreamResponse:
        reply = await route.handler(request)
        if isinstance(reply, web.StreamResponse):
            return reply
        if isinstance(reply, Reply):
            return json_reply(reply.value, status=reply.status or route.spec.status, headers=reply.headers)
        return json_reply(reply, status=route.spec.status)

    return web.route(route.spec.method, route.spec.path, handle)
