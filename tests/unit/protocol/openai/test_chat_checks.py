"""What no server knows is refused with the field's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.api.inference.chat import read_chat
from sparewatt.core.errors import InvalidField

HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"name": "a", "schema": {"type": "object"}}


def read(**fields: Any) -> None:
    read_chat(json.dumps({"model": "m", "messages": HI, **fields}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": [{"role": role, "content": "a"} for role in ("developer", "system", "user", "assistant")]},
        {"messages": [*HI, {"role": "function", "name": "f", "content": "1"}]},
        {"messages": [*HI, {"role": "tool", "tool_call_id": "1", "content": "a"}]},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"response_format": {"type": "structural_tag", "format": {}}},
        {"tools": None, "tool_choice": None},
        {"tools": [], "tool_choice": "none"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"temperature": 1, "stop": ["a"], "seed": 5, "logit_bias": {"5": -100}, "user": 7},
    ],
)
def test_what_servers_know_passes(fields: dict[str, Any]) -> None:
    read(**fields)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": [*HI, {"role": "king", "content": "a"}]}, "messages[1].role", "must be one of developer,"),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "must be one of"),
        ({"messages": ["Hi"]}, "messages[0]", "must be an object"),
        ({"response_format": "json"}, "response_format", "must be an object with a type"),
        (
            {"response_format": {"type": "json"}},
            "response_format.type",
            "must be one of text, json_object, json_schema",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be an object"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema",
            "a schema",
        ),
        ({"tools": {"type": "function"}}, "tools", "must be a list"),
        ({"tool_choice": "any"}, "tool_choice", "must be one of auto, none, required"),
        ({"temperature": "hot"}, "temperature", "must be a number, not a text"),
        ({"max_tokens": "many"}, "max_tokens", "must be a whole number, not a text"),
        ({"max_tokens": -1}, "max_tokens", "must be at least 0"),
        ({"n": 1000}, "n", "must be at most 128"),
        ({"stop": 5}, "stop", "must be a text or a list, not a whole number"),
        ({"stream": "yes"}, "stream", "must be true or false, not a text"),
        ({"messages": []}, "messages", "must have at least 1 entries"),
        ({"messages": {}}, "messages", "must be a list, not an object"),
        ({"logit_bias": [1]}, "logit_bias", "must be an object, not a list"),
        ({"functions": {}}, "functions", "must be a list"),
        ({"functions": [], "function_call": 5}, "function_call", "must be auto, none"),
        ({"messages": [{"role": "assistant", "function_call": 5}]}, "messages[0].function_call", "an object"),
    ],
)
def test_what_none_knows_is_refused_in_our_words(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read(**fields)
    assert caught.value.param == param
    assert words in caught.value.message
    assert "`" not in caught.value.message
