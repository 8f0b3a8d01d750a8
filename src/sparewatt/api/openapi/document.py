"""GET /openapi.json: the whole API, made from the declared routes and the types of `protocol/api/`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from aiohttp import web

from sparewatt import __version__
from sparewatt.api.endpoint import ApiRoute, declared_routes, endpoint
from sparewatt.api.openapi.shapes import SHAPES, ref
from sparewatt.protocol.api.feed import FeedDelta, FeedSnapshot
from sparewatt.protocol.error_shapes import OLLAMA_PREFIX, speaks_anthropic

_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
_ERRORS = {
    "500": "A fault of the gateway. It carries an id to report.",
    "502": "No node could answer, after several attempts.",
    "503": "No node can have it now, or none that its policy allows; or the gateway is stopping.",
    "504": "No first token in time.",
}
_SSE_EVENT = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "id", "data")}}
"""One server-sent event, as tools that read such streams see it."""
NDJSON = "application/x-ndjson"
_EVENTS = (FeedSnapshot, FeedDelta)
"""Types that travel as server-sent events: no route returns them as a whole."""


class OpenApiEndpoints:
    def __init__(self, routes: Sequence[ApiRoute]) -> None:
        self._routes = [*routes, *declared_routes(type(self))]

    @cached_property
    def _document(self) -> bytes:
        """Made for the first who asks: a gateway starts without it."""
        return make_document(self._routes)

    @endpoint("GET /openapi.json", access="public", content_type="application/json")
    async def show_document(self, _: web.Request) -> web.Response:
        """Show this document."""
        return web.Response(body=self._document, content_type="application/json")


def make_document(routes: Iterable[ApiRoute]) -> bytes:
    routes = list(routes)
    types = [kind for route in routes for kind in (*_members(route.reply), *_members(route.spec.body))]
    schemas, components = msgspec.json.schema_components([*types, *_EVENTS], ref_template=ref("{name}")["$ref"])
    by_type = {repr(kind): schema for kind, schema in zip([*types, *_EVENTS], schemas, strict=True)}
    replies = [_schema(route.reply, by_type) for route in routes if route.reply is not None]
    bodies = [_schema(route.spec.body, by_type) for route in routes if route.spec.body is not None]
    events = [by_type[repr(kind)] for kind in _EVENTS]
    for name in _reachable([*replies, *events], components) - _reachable(bodies, components):
        _require_defaults(components[name])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.spec.path)
        paths.setdefault(path, {})[route.spec.method.lower()] = _operation(route, path, by_type)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Sparewatt",
            "version": __version__,
            "description": "An OpenAI-compatible endpoint over many unequal nodes, and what belongs to it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**components, **SHAPES},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "sk-sw-…"}},
        },
    }
    return msgspec.json.encode(document)


def _reachable(schemas: Iterable[Any], components: dict[str, Any]) -> set[str]:
    """Names of all schemas that these refer to, directly or not."""
    names: set[str] = set()
    pending = list(schemas)
    while pending:
        schema = pending.pop()
        if isinstance(schema, dict):
            name = str(schema.get("$ref", "")).rpartition("/")[2]
            if name in components and name not in names:
                names.add(name)
                pending.append(components[name])
            pending += schema.values()
        elif isinstance(schema, list):
            pending += schema
    return names


def _require_defaults(schema: dict[str, Any]) -> None:
    """A reply always has the fields that a constructor could leave out."""
    fields = schema.get("properties", {})
    required = [name for name, field in fields.items() if name in schema.get("required", ()) or "default" in field]
    if required:
        schema["required"] = required


def _members(kind: Any) -> Sequence[Any]:
    """The types of a union, each by itself; none for the name of a schema."""
    if kind is None or isinstance(kind, str):
        return ()
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _schema(kind: Any, by_type: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return ref(kind)
    schemas = [by_type[repr(member)] for member in _members(kind)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _operation(route: ApiRoute, path: str, by_type: dict[str, Any]) -> dict[str, Any]:
    spec = route.spec
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", path),
        "summary": str((route.handler.__doc__ or "").strip().splitlines()[0]),
        "tags": [route.tag],
        "parameters": list(_parameters(path, spec.query)),
        "responses": _responses(route, by_type),
        "security": [] if spec.access == "public" else [{"key": []}],
    }
    if spec.body is not None:
        schema = {"schema": _schema(spec.body, by_type)}
        operation["requestBody"] = {"required": True, "content": {"application/json": schema}}
    return operation


def _parameters(path: str, query: Iterable[str]) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for name in query:
        yield {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}


def _responses(route: ApiRoute, by_type: dict[str, Any]) -> dict[str, Any]:
    spec, content = route.spec, {}
    if route.reply is not None:
        content["application/json"] = {"schema": _schema(route.reply, by_type)}
    if spec.streams:
        content["text/event-stream"] = {"schema": _SSE_EVENT}
    if spec.ndjson:
        content[NDJSON] = {"schema": {"type": "string", "description": "A line of JSON for every piece."}}
    if spec.csv:
        content["text/csv"] = {"schema": {"type": "string"}}
    if spec.content_type is not None:
        content[spec.content_type] = {
            "schema": {"type": "object" if spec.content_type == "application/json" else "string"}
        }
    name, whose = _error_shape(spec.path)
    error = {"application/json": {"schema": ref(name)}}
    errors = {status: {"description": text, "content": error} for status, text in _ERRORS.items()}
    success = {"description": "As requested.", "content": content}
    return {
        **{str(status): success for status in (spec.status, *spec.other_statuses)},
        **errors,
        "default": {"description": f"{whose} error object.", "content": error},
    }


def _error_shape(path: str) -> tuple[str, str]:
    """The schema of a path's errors, and whose it is."""
    if speaks_anthropic(path, {}):
        return "AnthropicError", "Anthropic's"
    return ("OllamaError", "Ollama's") if path.startswith(OLLAMA_PREFIX) else ("Error", "OpenAI's")
