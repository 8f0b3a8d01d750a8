"""Cuts OpenAI's specification down to the routes that a gateway has, and what their requests and replies are made of.

python -m tests.openai_spec.trim PATH/openapi.json writes openai.json beside this file. The specification is
openai/openai-openapi on GitHub, under the MIT licence (LICENSE.openai); descriptions and examples are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRIMMED = Path(__file__).parent / "openai.json"
ROUTES = {
    "/chat/completions": ("post",),
    "/completions": ("post",),
    "/embeddings": ("post",),
    "/models": ("get",),
    "/models/{model}": ("get",),
    "/responses": ("post",),
    "/responses/{response_id}": ("get", "delete"),
    "/responses/{response_id}/cancel": ("post",),
    "/responses/{response_id}/input_items": ("get",),
    "/responses/input_tokens": ("post",),
}
ALSO = ("CreateChatCompletionStreamResponse", "ErrorResponse", "ResponseStreamEvent")
"""Replies that the routes do not name by a JSON body."""
_PROSE = frozenset({"description", "summary", "title", "example", "examples", "externalDocs", "tags", "deprecated"})
_BY_NAME = ("properties", "patternProperties", "schemas", "responses", "paths")
"""Objects whose keys are names, not keywords."""
_OLDER = ("nullable", "$recursiveRef", "$recursiveAnchor")
_ERROR = {
    "description": "",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}},
}
_REF = "#/components/schemas/"


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    paths = {path: _route(document["paths"][path], methods) for path, methods in ROUTES.items()}
    schemas: dict[str, Any] = {}
    wanted = [*ALSO, *_refs(paths)]
    while wanted:
        name = wanted.pop()
        if name not in schemas:
            schemas[name] = _in_one_dialect(_without_prose(document["components"]["schemas"][name]), name)
            wanted += _refs(schemas[name])
    return {
        "openapi": document["openapi"],
        "info": {"title": "OpenAI API, cut down", "version": document["info"]["version"]},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _route(route: dict[str, Any], methods: tuple[str, ...]) -> dict[str, Any]:
    """Any other reply than 200 has the one shape of errors."""
    kept = ("operationId", "parameters", "requestBody")
    described = {}
    for method in methods:
        operation = route[method]
        content = operation["responses"]["200"].get("content", {}).get("application/json")
        done = {"content": {"application/json": content}} if content else {}
        replies = {"200": {"description": "", **_without_prose(done)}, "default": _ERROR}
        described[method] = {
            **_without_prose({name: operation[name] for name in kept if name in operation}),
            "responses": replies,
        }
    return described


def _without_prose(value: Any, *, is_named: bool = False) -> Any:
    if isinstance(value, list):
        return [_without_prose(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_prose(each, is_named=name in _BY_NAME and not is_named)
        for name, each in value.items()
        if is_named or (name not in _PROSE and not name.startswith("x-"))
    }


def _in_one_dialect(value: Any, schema: str) -> Any:
    """`nullable` is of OpenAPI 3.0 and `$recursiveRef` of an older JSON Schema: written as 3.1 has them."""
    if isinstance(value, list):
        return [_in_one_dialect(each, schema) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _in_one_dialect(each, schema) for name, each in value.items() if name not in _OLDER}
    if "$recursiveRef" in value:
        plain["$ref"] = _REF + schema
    return {"anyOf": [plain, {"type": "null"}]} if value.get("nullable") is True else plain


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _refs(each)
    elif isinstance(value, dict):
        ref = value.get("$ref")
        if isinstance(ref, str):
            yield ref.removeprefix(_REF)
        for each in value.values():
            yield from _refs(each)


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    TRIMMED.write_text(json.dumps(trimmed(document), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
