from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest
from sparewatt.protocol.responses.tools import read_tools
from tests.unit.protocol.responses.builders import chat_of

WEATHER = {"type": "function", "name": "weather", "description": "It", "parameters": {"type": "object"}, "strict": True}
SEARCH = {"type": "function", "name": "search", "parameters": None}
BARE = {"model": "llama", "messages": [{"role": "user", "content": "Hi"}]}


def added(**fields: Any) -> dict[str, Any]:
    """What a field adds to the plainest chat."""
    return {name: value for name, value in chat_of(**fields).items() if BARE.get(name) != value}


def test_a_plain_request_is_a_plain_chat() -> None:
    assert chat_of() == BARE


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"background": True, "store": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"max_output_tokens": 20}, {"max_tokens": 20}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
        ({"presence_penalty": 1, "frequency_penalty": -1}, {"presence_penalty": 1.0, "frequency_penalty": -1.0}),
        ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True, "top_logprobs": 0}),
        ({"seed": 7, "top_k": 5}, {"seed": 7, "top_k": 5}),
        ({"provider": {"region": ["EU"]}}, {"provider": {"region": ["EU"]}}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"metadata": {"a": "b"}, "user": "u", "store": True, "prompt_cache_key": "k"}, {}),
        ({"parallel_tool_calls": False}, {}),
    ],
)
def test_each_field_has_its_counterpart_in_a_chat(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    assert added(**fields) == chat


def test_a_schema_is_passed_on() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    wanted = {"type": "json_schema", "name": "thing", "schema": schema, "strict": True}
    assert added(text={"format": wanted}) == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "thing", "schema": schema, "strict": True},
        }
    }


@pytest.mark.parametrize("wanted", [{"type": "json_schema"}, {"type": "xml"}, {}])
def test_an_unknown_format_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        chat_of(text={"format": wanted})


def test_functions_are_passed_on_without_what_the_client_left_out() -> None:
    function = {name: WEATHER[name] for name in ("name", "description", "parameters", "strict")}
    assert added(tools=[WEATHER, SEARCH], parallel_tool_calls=False) == {
        "tools": [{"type": "function", "function": function}, {"type": "function", "function": {"name": "search"}}],
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", None),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_the_tool_choice_is_passed_on(choice: object, said: object) -> None:
    assert chat_of(tools=[WEATHER], tool_choice=choice).get("tool_choice") == said


def test_only_the_allowed_functions_are_offered() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "search"}]}
    chat = chat_of(tools=[WEATHER, SEARCH], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["search"]
    assert chat["tool_choice"] == "required"


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes",
        {"type": "function", "name": "unknown"},
        {"type": "web_search"},
        {"type": "allowed_tools", "tools": []},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}], "mode": "often"},
    ],
)
def test_a_choice_of_an_unknown_function_is_refused(choice: object) -> None:
    with pytest.raises(BadRequest) as caught:
        chat_of(tools=[WEATHER], tool_choice=choice)
    assert str(caught.value.param).startswith("tool_choice")


def test_hosted_tools_are_dropped_and_named() -> None:
    tools = read_tools([{"type": "web_search"}, WEATHER, {"type": "mcp"}], None)
    assert tools.ignored == ("tools.web_search", "tools.mcp")
    assert [function["name"] for function in tools.functions] == ["weather"]


@pytest.mark.parametrize("tool", [{"type": "function"}, {"type": "function", "name": "x", "parameters": "y"}])
def test_a_malformed_function_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        read_tools([tool], None)
