"""Tools by a schema: what the server is asked, and what its JSON becomes, wherever it is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.node.backends.generic_tools import (
    GenericToolReader,
    UnreadableTools,
    generic_request,
    whole_message,
)

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": PARAMETERS}}
TIME = {"type": "function", "function": {"name": "time"}}
HI = {"role": "user", "content": "Hi"}


def asked(**fields: Any) -> dict[str, Any]:
    body = generic_request({"model": "m", "messages": [HI], "tools": [TOOL, TIME], **fields})
    assert body is not None
    return body


def schema_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["response_format"]["json_schema"]["schema"]
    return found


def test_a_request_without_tools_is_left_alone() -> None:
    assert generic_request({"messages": [HI]}) is None
    assert generic_request({"messages": [HI], "tools": []}) is None


def test_tools_are_described_and_the_answer_is_one_of_them_or_text() -> None:
    body = asked()
    assert not {"tools", "tool_choice"} & body.keys()
    system, user = body["messages"]
    assert (system["role"], user) == ("system", HI)
    assert '"weather"' in system["content"]
    variants = schema_of(body)["anyOf"]
    assert [list(each["properties"]) for each in variants] == [["tool_call"], ["tool_call"], ["response"]]
    assert variants[0]["properties"]["tool_call"]["properties"]["arguments"] == PARAMETERS


def test_a_system_message_stays_the_only_one() -> None:
    messages = asked(messages=[{"role": "system", "content": "Be kind."}, HI])["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"].startswith("Be kind.\n\n")


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", ["weather", "time"]), ({"type": "function", "function": {"name": "time"}}, ["time"])],
)
def test_a_choice_leaves_only_calls(choice: object, names: list[str]) -> None:
    schema = schema_of(asked(tool_choice=choice))
    variants = schema.get("anyOf", [schema])
    calls = [each["properties"]["tool_call"]["properties"]["name"]["const"] for each in variants]
    assert calls == names


def test_none_is_a_chat_without_tools() -> None:
    body = asked(tool_choice="none")
    assert (body["messages"], "response_format" in body) == ([HI], False)


def test_an_answer_that_is_continued_is_text() -> None:
    body = asked(messages=[HI, {"role": "assistant", "content": "He"}])
    assert "response_format" not in body


def test_definitions_move_to_where_references_look() -> None:
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    schema = schema_of(asked(tools=[TIME, tool]))
    assert schema["$defs"] == {"1.A": {"type": "string"}}
    call = schema["anyOf"][1]["properties"]["tool_call"]
    assert call["properties"]["arguments"]["properties"]["a"] == {"$ref": "#/$defs/1.A"}


def test_earlier_calls_are_written_as_the_model_wrote_them() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
    turns = [HI, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "snow"}]
    _, _, assistant, result = asked(messages=turns)["messages"]
    assert assistant == {
        "role": "assistant",
        "content": '{"tool_call": {"name": "weather", "arguments": {"city":"Oslo"}}}',
    }
    assert result == turns[2]


@pytest.mark.parametrize("tools", [[5], [{"type": "function"}], [{"function": {"name": 5}}]])
def test_tools_of_another_shape_are_the_servers_to_refuse(tools: list[Any]) -> None:
    with pytest.raises(UnreadableTools):
        generic_request({"messages": [HI], "tools": tools})


def read(answer: str, cuts: list[int]) -> tuple[str, dict[str, str] | None]:
    reader, deltas = GenericToolReader("call_1"), list[dict[str, Any]]()
    at = 0
    for cut in [*sorted(cuts), len(answer)]:
        deltas += reader.feed(answer[at:cut])
        at = max(at, cut)
    deltas += reader.end()
    text = "".join(delta.get("content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    if not calls:
        return text, None
    assert [call.get("id") for call in calls] == ["call_1"] + [None] * (len(calls) - 1)
    function = {"name": calls[0]["function"]["name"]}
    return text, function | {"arguments": "".join(call["function"]["arguments"] for call in calls)}


cuts = st.lists(st.integers(0, 120), max_size=30)
indents = st.sampled_from([None, 2])


@given(st.text(), cuts, indents, st.booleans())
def test_text_arrives_as_it_was_meant(text: str, at: list[int], indent: int | None, ascii_only: bool) -> None:  # noqa: FBT001
    answer = json.dumps({"response": text}, indent=indent, ensure_ascii=ascii_only)
    assert read(answer, at) == (text, None)


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner)), cuts, indents
)
def test_arguments_arrive_as_they_were_written(value: object, at: list[int], indent: int | None) -> None:
    arguments = {"a": value}
    text, call = read(json.dumps({"tool_call": {"name": "f", "arguments": arguments}}, indent=indent), at)
    assert (text, call and call["name"]) == ("", "f")
    assert call is not None
    assert json.loads(call["arguments"]) == arguments


@given(st.text(st.characters(exclude_characters="{ \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"), min_size=1), cuts)
def test_what_is_no_such_json_is_text(text: str, at: list[int]) -> None:
    if not text[0].isspace():
        assert read(text, at) == (text, None)


@pytest.mark.parametrize("answer", ['{"response": 5}', '{"response": [1, "]"]}', '{"response": {"a": "}"}}'])
def test_an_answer_by_another_schema_is_its_json(answer: str) -> None:
    value = json.loads(answer)["response"]
    assert json.loads(read(answer, [3, 14, 17])[0]) == value


def test_an_answer_that_ends_early_keeps_what_was_written() -> None:
    assert read('{"response": "Hel', []) == ("Hel", None)
    assert read('{"tool_call": {"name": "f", "arguments": {"a', [])[1] == {"name": "f", "arguments": '{"a'}
    assert read('{"tool', []) == ('{"tool', None)


def test_a_whole_answer_is_read_the_same_way() -> None:
    call = whole_message({"role": "assistant", "content": '{"tool_call":{"name":"f","arguments":{}}}'}, "c")
    assert call["content"] is None
    assert call["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert whole_message({"role": "assistant", "content": '{"response":"a"}'}, "c")["content"] == "a"
