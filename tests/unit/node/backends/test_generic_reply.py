"""A server's JSON becomes tool calls, whole and event by event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sparewatt.node.backends.generic_reply import generic_events, generic_whole
from sparewatt.node.backends.llama_requests import rewritten_request

CALL = '{"tool_call": {"name": "f", "arguments": {"a": "b"}}}'
CHAT = "/v1/chat/completions"
TOOLS = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"function": {"name": "f"}}]}


def event(delta: dict[str, Any], *, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "chatcmpl-x", "choices": [choice]}).encode() + b"\n\n"


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def choices_of(stream: bytes, size: int = 7) -> list[dict[str, Any]]:
    written = b"".join([chunk async for chunk in generic_events(pieces(stream, size))])
    events = [line[6:] for line in written.split(b"\n\n") if line.startswith(b"data: {")]
    return [choice for each in events for choice in json.loads(each)["choices"]]


@pytest.mark.parametrize("size", [1, 50, 10_000])
async def test_a_stream_becomes_a_call(size: int) -> None:
    words = [CALL[at : at + 3] for at in range(0, len(CALL), 3)]
    stream = event({"role": "assistant", "content": None}) + b"".join(event({"content": word}) for word in words)
    choices = await choices_of(stream + event({}, finish="stop") + b"data: [DONE]\n\n", size)
    assert choices[0]["delta"] == {"role": "assistant"}
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    assert calls[0] == {"index": 0, "id": "call_x_0", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"a": "b"}
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


async def test_two_answers_are_read_each_by_itself() -> None:
    stream = event({"content": '{"response": "a'}) + event({"content": CALL}, index=1) + event({"content": 'b"}'})
    choices = await choices_of(stream + event({}, finish="length") + event({}, finish="stop", index=1))
    assert "".join(each["delta"].get("content", "") for each in choices if each["index"] == 0) == "ab"
    assert [each["finish_reason"] for each in choices if each["finish_reason"]] == ["length", "tool_calls"]


async def test_counts_comments_and_errors_pass() -> None:
    others = b': hi\n\ndata: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: {"error":{}}\n\ndata: [DONE]\n\n'
    written = b"".join([chunk async for chunk in generic_events(pieces(others, 5))])
    assert written == others


async def whole(body: bytes) -> bytes:
    return b"".join([chunk async for chunk in generic_whole(pieces(body, 9))])


async def test_a_whole_reply_becomes_a_call() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": CALL}, "finish_reason": "stop"}
    (found,) = json.loads(await whole(json.dumps({"id": "chatcmpl-x", "choices": [choice]}).encode()))["choices"]
    assert found["finish_reason"] == "tool_calls"
    assert json.loads(found["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": "b"}


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices":5}', b'{"choices":[{"message":5}]}'])
async def test_what_is_no_reply_passes_as_it_is(body: bytes) -> None:
    assert await whole(body) == body


def test_a_request_is_rewritten_only_where_it_must_be() -> None:
    body = json.dumps(TOOLS).encode()
    assert rewritten_request(CHAT, body, has_tool_template=True).body is body
    assert rewritten_request("/v1/completions", body, has_tool_template=False).body is body
    generic = rewritten_request(CHAT, body, has_tool_template=False)
    assert (generic.is_generic, b'"tools"' in generic.body) == (True, False)
    none = rewritten_request(CHAT, json.dumps(TOOLS | {"tool_choice": "none"}).encode(), has_tool_template=False)
    assert (none.is_generic, b'"tools"' in none.body) == (False, False)


@pytest.mark.parametrize("body", [b'{"tools"', json.dumps(TOOLS | {"tools": [5]}).encode(), b'{"tools":[1]}'])
def test_what_cannot_be_read_is_the_servers_to_refuse(body: bytes) -> None:
    assert rewritten_request(CHAT, body, has_tool_template=False).body == body
