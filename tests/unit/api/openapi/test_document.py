"""The OpenAPI document: it has every route with its body and reply, and every schema that it refers to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec
import pytest

from sparewatt.api.endpoint import ApiRoute, routes_of
from sparewatt.api.openapi.__main__ import all_routes
from sparewatt.api.openapi.document import NDJSON, OpenApiEndpoints, make_document
from sparewatt.api.openapi.shapes import SHAPES
from sparewatt.gateway.routes import endpoint_groups, make_app
from tests.unit.gateway.small_gateway import make_services, running

GROUPS = endpoint_groups(make_services())
ROUTES = routes_of([*GROUPS, OpenApiEndpoints(routes_of(GROUPS))])
PATTERN = re.compile(r":[^{}]*\}")
"""Of a path's parameter, which the document does not have: `{model:.+}`."""


def name_of(route: ApiRoute) -> str:
    return f"{route.spec.method} {PATTERN.sub('}', route.spec.path)}"


def names_of(routes: Iterable[ApiRoute]) -> list[str]:
    return sorted(map(name_of, routes))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(make_document(ROUTES))
    return decoded


def operations_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{method.upper()} {path}": each for path, at in document["paths"].items() for method, each in at.items()}


async def test_a_gateway_serves_the_document(document: dict[str, Any]) -> None:
    async with running(make_services()) as client:
        reply = await client.get("/openapi.json")
        assert reply.status == 200
        assert await reply.json() == document


def test_without_a_gateway_the_document_has_the_same_routes() -> None:
    assert names_of(all_routes()) == names_of(ROUTES)


def test_the_document_has_every_route_of_the_router_and_no_other(document: dict[str, Any]) -> None:
    documented = set(operations_of(document))
    assert sorted(documented) == names_of(ROUTES)
    router = make_app(make_services()).router
    served = {(route.method, route.resource.canonical) for route in router.routes() if route.resource is not None}
    assert {f"{method} {path}" for method, path in served if method != "HEAD"} == documented
    assert {"POST /v1/chat/completions", "POST /v1/embeddings", "GET /v1/models/{model}"} <= set(
        operations_of(document)
    )


def error_shape(path: str) -> str:
    if path.startswith("/v1/messages"):
        return "AnthropicError"
    return "OllamaError" if path.startswith("/api/") else "Error"


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_every_route_has_the_schema_of_its_reply(route: ApiRoute, document: dict[str, Any]) -> None:
    responses = operations_of(document)[name_of(route)]["responses"]
    for status in (route.spec.status, *route.spec.other_statuses):
        content = responses[str(status)]["content"]
        is_json = route.reply is not None or route.spec.content_type == "application/json"
        assert ("application/json" in content) is is_json
        assert content
        assert all(each["schema"] for each in content.values())
        assert ("text/event-stream" in content) is route.spec.streams
        assert ("text/csv" in content) is route.spec.csv
        assert (NDJSON in content) is route.spec.ndjson
    assert responses["default"]["content"]["application/json"]["schema"] == {
        "$ref": f"#/components/schemas/{error_shape(route.spec.path)}"
    }


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_every_route_has_its_parameters_and_its_body(route: ApiRoute, document: dict[str, Any]) -> None:
    operation = operations_of(document)[name_of(route)]
    named = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
    assert named == re.findall(r"\{(\w+)", route.spec.path)
    assert [each["name"] for each in operation["parameters"] if each["in"] == "query"] == list(route.spec.query)
    assert ("requestBody" in operation) is (route.spec.body is not None)


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= names


def test_schemas_by_hand_are_used_and_replace_no_type(document: dict[str, Any]) -> None:
    assert {f"#/components/schemas/{name}" for name in SHAPES} <= set(references(document))
    declared = {kind for route in ROUTES for kind in (route.reply, route.spec.body) if not isinstance(kind, str)}
    _, types = msgspec.json.schema_components([each for kind in declared for each in get_args(kind) or (kind,)])
    assert types
    assert not set(types) & set(SHAPES)


def test_operation_ids_are_unique_and_every_operation_has_a_summary(document: dict[str, Any]) -> None:
    operations = list(operations_of(document).values())
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["summary"] for operation in operations)


def test_a_route_that_needs_a_key_declares_it(document: dict[str, Any]) -> None:
    paths = document["paths"]
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
