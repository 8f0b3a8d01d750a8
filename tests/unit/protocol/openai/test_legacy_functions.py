"""Functions of 2023 become tools, and tool calls become what such clients know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.api.inference.chat import read_chat
from sparewatt.inference.call import ModelCall

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
CALL = {"name": "weather", "arguments": "{}"}
HI = {"role": "user", "content": "Hi"}


def read(**fields: Any) -> ModelCall:
    return read_chat(json.dumps({"model": "m", "messages": [HI], **fields}).encode())


def sent(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(**fields).body)
    return found


@pytest.mark.parametrize(
    ("choice", "tool_choice"),
    [
        ({}, {}),
        ({"function_call": "auto"}, {"tool_choice": "auto"}),
        ({"function_call": "none"}, {"tool_choice": "none"}),
        (
            {"function_call": {"name": "weather"}},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ),
    ],
)
def test_functions_become_tools(choice: dict[str, Any], tool_choice: dict[str, Any]) -> None:
    body = sent(functions=[WEATHER], **choice)
    assert body.pop("tools") == [{"type": "function", "function": WEATHER}]
    assert body == {"model": "m", "messages": [HI], "parallel_tool_calls": False, **tool_choice}


def test_they_need_a_model_with_tools() -> None:
    call = read(functions=[WEATHER])
    assert "tools" in call.needs
    assert (call.ignored, call.foreign) == ((), ())
    assert read().reply_filter is None


def test_tools_beside_them_win() -> None:
    call = read(functions=[WEATHER], tools=[{"type": "function", "function": WEATHER}])
    assert call.reply_filter is None
    assert call.ignored == ("functions",)


def test_earlier_turns_become_those_of_a_tool() -> None:
    turns = [HI, {"role": "assistant", "content": None, "function_call": CALL}]
    turns += [{"role": "function", "name": "weather", "content": "sun"}]
    assert sent(messages=turns)["messages"] == [
        HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_weather", "type": "function", "function": CALL}],
        },
        {"role": "tool", "content": "sun", "tool_call_id": "call_weather"},
    ]


def test_a_whole_answer_has_its_call_the_older_way() -> None:
    reply_filter = read(functions=[WEATHER]).reply_filter
    assert reply_filter is not None
    calls = [{"id": "1", "type": "function", "function": CALL}]
    message = {"role": "assistant", "content": None, "refusal": None}
    choice = {"index": 0, "message": {**message, "tool_calls": calls}, "finish_reason": "tool_calls"}
    written = json.loads(reply_filter.whole(json.dumps({"id": "c", "choices": [choice]}).encode()))
    assert written == {
        "id": "c",
        "choices": [{"index": 0, "message": {**message, "function_call": CALL}, "finish_reason": "function_call"}],
    }


def test_so_has_a_stream_of_which_the_first_call_is_told() -> None:
    reply_filter = read(functions=[WEATHER], stream=True).reply_filter
    assert reply_filter is not None
    deltas = [
        {"role": "assistant", "content": None},
        {"tool_calls": [{"index": 0, "id": "1", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "other"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks[-1]["choices"][0]["finish_reason"] = "tool_calls"
    stream = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    halves = reply_filter.feed(stream[:100]) + reply_filter.feed(stream[100:]) + reply_filter.rest()
    *events, done, _ = halves.split(b"\n\n")
    written = [json.loads(event[6:])["choices"][0] for event in events]
    assert [choice["delta"] for choice in written] == [
        {"role": "assistant", "content": None},
        {"function_call": {"name": "weather", "arguments": ""}},
        {},
        {"function_call": {"arguments": "{}"}},
        {},
    ]
    assert written[-1]["finish_reason"] == "function_call"
    assert done == b"data: [DONE]"


def test_an_answer_without_a_call_stays_as_it_is() -> None:
    reply_filter = read(functions=[WEATHER]).reply_filter
    assert reply_filter is not None
    whole = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
    assert json.loads(reply_filter.whole(json.dumps(whole).encode())) == whole
