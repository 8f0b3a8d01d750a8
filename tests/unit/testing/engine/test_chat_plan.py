"""Tool calls and structured output: which tools are called, valid arguments, and deltas that add up."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from tests.unit.testing.client import Client, chat, joined

PATH = "/v1/chat/completions"


class Place(Struct):
    city: Annotated[str, Meta(min_length=3, max_length=5)]
    country: Literal["DE", "FR"]


class Report(Struct):
    place: Place
    days: Annotated[int, Meta(ge=1, le=3)]
    chance: Annotated[float, Meta(gt=0, lt=0.25)]
    hours: Annotated[list[int], Meta(min_length=2)]
    unit: str | None
    exact: bool
    note: str = ""


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or msgspec.json.schema(Report)}}


TOOLS = [tool("get_weather"), tool("get_time", {"type": "object", "properties": {}})]


def called(reply: Any) -> list[str]:
    return [call["function"]["name"] for call in reply["choices"][0]["message"].get("tool_calls", [])]


@pytest.mark.parametrize(
    ("content", "choice", "names"),
    [
        pytest.param("How is the weather?", None, ["get_weather"], id="a word of the name"),
        pytest.param("call get_time please", "auto", ["get_time"], id="the whole name"),
        pytest.param("use a tool", "auto", ["get_weather"], id="the word tool"),
        pytest.param("weather and time", "auto", ["get_weather", "get_time"], id="two at once"),
        pytest.param("Hello", "auto", [], id="no tool mentioned"),
        pytest.param("get me a coffee", "auto", [], id="a short word of the name is no mention"),
        pytest.param("Hello", "required", ["get_weather"], id="required"),
        pytest.param("use a tool", "none", [], id="none"),
        pytest.param("weather", {"type": "function", "function": {"name": "get_time"}}, ["get_time"], id="named"),
    ],
)
async def test_tools_are_called_by_choice_or_when_mentioned(
    engine: Client, content: str, choice: Any, names: list[str]
) -> None:
    reply = await engine.post(PATH, messages=chat(content), tools=TOOLS, tool_choice=choice)
    assert called(reply) == names
    assert reply["choices"][0]["finish_reason"] == ("tool_calls" if names else "stop")
    assert (reply["choices"][0]["message"]["content"] is None) == bool(names)


async def test_only_allowed_tools_are_called(engine: Client) -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    reply = await engine.post(PATH, messages=chat("weather"), tools=TOOLS, tool_choice=choice)
    assert called(reply) == ["get_time"]


async def test_one_call_at_a_time_without_parallel_calls(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("weather, time"), tools=TOOLS, parallel_tool_calls=False)
    assert called(reply) == ["get_weather"]


async def test_a_tool_result_is_answered_with_text(engine: Client) -> None:
    messages = [*chat("weather"), {"role": "tool", "tool_call_id": "c", "content": "weather tool"}]
    assert called(await engine.post(PATH, messages=messages, tools=TOOLS)) == []


async def test_a_choice_of_an_unknown_tool_is_refused(engine: Client) -> None:
    choice = {"type": "function", "function": {"name": "nope"}}
    status, reply = await engine.try_post(PATH, messages=chat("x"), tools=TOOLS, tool_choice=choice)
    assert (status, reply["error"]["param"]) == (400, "tool_choice")


async def test_arguments_fit_the_parameter_schema(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("weather"), tools=TOOLS)
    arguments = reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert msgspec.json.decode(arguments, type=Report)


async def test_streamed_tool_deltas_add_up_to_the_whole_calls(engine: Client) -> None:
    wanted = {"messages": chat("weather and time"), "tools": TOOLS}
    whole = await engine.post(PATH, **wanted)
    chunks = await engine.stream(PATH, **wanted)
    deltas = [delta for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", [])]
    heads = [delta for delta in deltas if "id" in delta]
    assert [(head["index"], head["type"]) for head in heads] == [(0, "function"), (1, "function")]
    assert sum("name" in delta["function"] for delta in deltas) == 2
    assert sum(delta["index"] == 0 for delta in deltas) > 3
    assert [_assembled(head, deltas) for head in heads] == whole["choices"][0]["message"]["tool_calls"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def _assembled(head: Any, deltas: list[Any]) -> dict[str, Any]:
    parts = [delta["function"]["arguments"] for delta in deltas if delta["index"] == head["index"]]
    function = {"name": head["function"]["name"], "arguments": "".join(parts)}
    return {"id": head["id"], "type": "function", "function": function}


async def test_a_json_schema_is_met_streamed_and_whole(engine: Client) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "r", "schema": msgspec.json.schema(Report)}}
    reply = await engine.post(PATH, messages=chat("Hello"), response_format=wanted)
    content = reply["choices"][0]["message"]["content"]
    assert msgspec.json.decode(content, type=Report)
    assert joined(await engine.stream(PATH, messages=chat("Hello"), response_format=wanted)) == content


async def test_a_json_object_is_an_object(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), response_format={"type": "json_object"})
    assert isinstance(json.loads(reply["choices"][0]["message"]["content"]), dict)


async def test_json_that_was_cut_continues_with_the_rest(engine: Client) -> None:
    wanted = {"type": "json_object"}
    whole = (await engine.post(PATH, messages=chat("Hello"), response_format=wanted))["choices"][0]["message"][
        "content"
    ]
    for at in range(len(whole) + 1):
        reply = await engine.post(PATH, messages=chat("Hello", prefill=whole[:at]), response_format=wanted)
        assert reply["choices"][0]["message"]["content"] == whole[at:]
