"""The document of our own API: every route is in it, and what it refers to is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sparewatt.gateway.openapi.document import routes_of
from sparewatt.gateway.openapi.table import TABLE
from sparewatt.gateway.routes import make_app
from tests.unit.gateway.small_gateway import make_services, running


async def document() -> dict[str, Any]:
    async with running(make_services()) as client:
        reply = await client.get("/openapi.json")
        assert reply.status == 200
        found: dict[str, Any] = await reply.json()
        return found


async def test_every_route_of_the_router_is_there_and_no_other() -> None:
    told = {f"{method.upper()} {path}" for path, each in (await document())["paths"].items() for method in each}
    assert told == {f"{method} {path}" for method, path, _ in routes_of(make_app(make_services()))}
    assert {"POST /v1/chat/completions", "POST /v1/embeddings", "GET /v1/models/{model}"} <= told


def test_the_table_speaks_of_no_route_that_is_gone() -> None:
    assert set(TABLE) <= {f"{method} {path}" for method, path, _ in routes_of(make_app(make_services()))}


async def test_every_reference_leads_somewhere() -> None:
    told = await document()
    names = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert set(references(told)) <= names


async def test_names_of_operations_are_unique_and_all_say_what_they_do() -> None:
    operations = [operation for each in (await document())["paths"].values() for operation in each.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["summary"] for operation in operations)


async def test_what_needs_a_key_says_so() -> None:
    paths = (await document())["paths"]
    assert paths["/v1/models"]["get"]["security"] == [{"key": []}]
    assert paths["/healthz"]["get"]["security"] == []


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_references_are_found() -> None:
    assert list(references(json.loads('[{"a": {"$ref": "x"}}]'))) == ["x"]
