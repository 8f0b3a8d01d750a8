"""Checks replies against OpenAI's specification, with the three exceptions of ADR 0062 written into it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import fastjsonschema

from tests.openai_spec.trim import TRIMMED

CHAT, CHUNK = "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"
TEXT, TEXT_CHUNK = "CreateCompletionResponse", "CreateCompletionStreamResponse"
"""The specification has one shape for both; see `_with_exceptions`."""
VECTORS, MODELS, MODEL, ERROR = "CreateEmbeddingResponse", "ListModelsResponse", "Model", "ErrorResponse"
RESPONSE, RESPONSE_EVENT = "Response", "ResponseStreamEvent"


@cache
def specification() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TRIMMED.read_text())
    return found


def assert_valid(kind: str, reply: Any) -> None:
    """An event of a response is checked as what it says it is: the error of a union of fifty names nothing."""
    kind = _event_kind(reply["type"]) if kind == RESPONSE_EVENT else kind
    try:
        _validator(kind)(reply)
    except fastjsonschema.JsonSchemaValueException as error:
        raise AssertionError(f"not a {kind}: {error.message}: {json.dumps(reply)[:2000]}") from None


def assert_valid_stream(kind: str, stream: bytes) -> list[Any]:
    """Each event of a stream; returns them."""
    chunks = [json.loads(data) for data in events_of(stream)]
    assert chunks
    for chunk in chunks:
        assert_valid(kind, chunk)
    return chunks


def events_of(stream: bytes) -> Iterator[bytes]:
    """The data of each event but the last one, `[DONE]`."""
    lines: Iterable[bytes] = stream.split(b"\n")
    return (line[6:] for line in lines if line.startswith(b"data: ") and line != b"data: [DONE]")


@cache
def _event_kind(event_type: str) -> str:
    schemas = specification()["components"]["schemas"]
    names: list[str] = [each["$ref"].rpartition("/")[2] for each in schemas[RESPONSE_EVENT]["anyOf"]]
    return next(name for name in names if schemas[name]["properties"]["type"]["enum"] == [event_type])


@cache
def _validator(kind: str) -> Callable[[Any], Any]:
    schemas = _with_exceptions(specification()["components"]["schemas"])
    validator: Callable[[Any], Any] = fastjsonschema.compile(
        {"$ref": f"#/components/schemas/{kind}", "components": {"schemas": schemas}}, formats=_FORMATS
    )
    return validator


_FORMATS = {"unixtime": ".*", "uri": ".*", "date": ".*", "float": ".*", "double": ".*", "int64": ".*"}


def _with_exceptions(schemas: dict[str, Any]) -> dict[str, Any]:
    """What OpenAI itself sends and its specification forbids, and clients need."""
    schemas = copy.deepcopy(schemas)
    text = schemas[TEXT]
    lists = _choice_of(text)["logprobs"]["anyOf"][0]["properties"]
    for name in ("token_logprobs", "top_logprobs"):  # null for the first token of an echoed prompt
        lists[name]["items"] = {"anyOf": [lists[name]["items"], {"type": "null"}]}
    chunk = schemas[TEXT_CHUNK] = copy.deepcopy(text)
    choice = _choice_of(chunk)
    choice["finish_reason"] = {"anyOf": [choice["finish_reason"], {"type": "null"}]}  # until the last
    usage = next(part for part in schemas[RESPONSE]["allOf"] if "usage" in part.get("properties", ()))["properties"]
    usage["usage"] = {"anyOf": [usage["usage"], {"type": "null"}]}  # until it is known
    return schemas


def _choice_of(reply: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = reply["properties"]["choices"]["items"]["properties"]
    return found
