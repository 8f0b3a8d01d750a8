"""GET /openapi.json: every route of the router, with what `table` and `shapes` say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from aiohttp import web

from sparewatt import __version__
from sparewatt.gateway.openapi.shapes import SHAPES, ref
from sparewatt.gateway.openapi.table import TABLE, Said

DOCUMENT = web.AppKey("openapi", bytes)
_PARAMETER = re.compile(r"\{(\w+)\}")
_TAGS = {
    "openai": "Inference",
    "accounts": "Accounts",
    "money": "Money",
    "feeds": "Network",
    "history": "Network",
    "chain": "Chain",
}
_DECLARED = {
    "500": "A fault of the gateway. It carries an id to report.",
    "502": "No node could answer, after several attempts.",
    "503": "Nobody can have it now, or nobody whom its policy allows; or the gateway is stopping.",
    "504": "No first token in time.",
}


async def show_document(request: web.Request) -> web.StreamResponse:
    """This document."""
    return web.Response(body=request.app[DOCUMENT], content_type="application/json")


def make_document(app: web.Application) -> bytes:
    """Once, when all routes are there."""
    bodies = [said.body for said in TABLE.values() if isinstance(said.body, type)]
    _, ours = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in routes_of(app):
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, handler)
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
            "schemas": {**ours, **SHAPES},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "sk-sw-…"}},
        },
    }
    return msgspec.json.encode(document)


def routes_of(app: web.Application) -> Iterator[tuple[str, str, Any]]:
    """Method, path and handler; what the framework adds by itself (HEAD) is left out."""
    for route in app.router.routes():
        if route.resource is not None and route.method != "HEAD":
            yield route.method, route.resource.canonical, route.handler


def _operation(method: str, path: str, handler: Any) -> dict[str, Any]:
    said = TABLE.get(f"{method} {path}", Said())
    operation: dict[str, Any] = {
        "operationId": f"{handler.__module__.rpartition('.')[2]}_{handler.__name__}",
        "summary": said.summary or _first_line(handler),
        "tags": [_tag(handler.__module__)],
        "parameters": [*_path_parameters(path), *map(_query_parameter, said.query)],
        "responses": _responses(said),
        "security": [] if said.is_open else [{"key": []}],
    }
    if said.body is not None:
        name = said.body if isinstance(said.body, str) else said.body.__name__
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(name)}}}
    return operation


def _first_line(handler: Any) -> str:
    words = (handler.__doc__ or handler.__name__.replace("_", " ").capitalize()).strip()
    return str(words.splitlines()[0])


def _tag(module: str) -> str:
    return next((tag for part, tag in _TAGS.items() if part in module.split(".")), "Service")


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(path)
    ]


def _query_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}


def _responses(said: Said) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": ref(said.reply) if said.reply else {}}}
    if said.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    error = {"application/json": {"schema": ref("Error")}}
    declared = {status: {"description": words, "content": error} for status, words in _DECLARED.items()}
    good = {"description": "As asked.", "content": content} if said.reply else {"description": "As asked."}
    return {
        "200" if said.reply else "2XX": good,
        **declared,
        "default": {"description": "OpenAI's error object.", "content": error},
    }
