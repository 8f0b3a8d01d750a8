"""A chat completion put together from its stream, whatever a node writes into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.protocol.openai import stored_chat
from sparewatt.protocol.openai.stored_chat import CompletionAssembler, messages_of, metadata_of, read_whole


def event(delta: Any = None, **choice: Any) -> bytes:
    chunk = {"id": "c1", "created": 5, "model": "m", "choices": [{"index": 0, "delta": delta or {}, **choice}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def assembled(*events: bytes) -> dict[str, Any] | None:
    """Fed byte by byte and at once, which must come to the same."""
    slowly, at_once = CompletionAssembler(), CompletionAssembler()
    for byte in b"".join(events):
        slowly.feed(bytes([byte]))
    at_once.feed(b"".join(events))
    assert slowly.completion() == at_once.completion()
    return at_once.completion()


def test_text_calls_and_scores_are_put_together() -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": '{"a'}}
    found = assembled(
        b": keep-alive\n\n",
        event({"role": "assistant", "content": "He"}, logprobs={"content": [{"token": "He"}]}),
        event({"content": "llo"}, logprobs={"content": [{"token": "llo"}]}),
        event({"tool_calls": [call]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]}),
        event(finish_reason="tool_calls"),
        b'data: {"id":"c1","choices":[],"usage":{"total_tokens":7}}\n\n',
        b"data: [DONE]\n\n",
    )
    assert found is not None
    (choice,) = found["choices"]
    assert choice["message"]["content"] == "Hello"
    assert choice["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
    ]
    assert [score["token"] for score in choice["logprobs"]["content"]] == ["He", "llo"]
    assert (choice["finish_reason"], found["usage"], found["object"]) == (
        *("tool_calls", {"total_tokens": 7}, "chat.completion"),
    )


@pytest.mark.parametrize(
    "broken",
    [
        b"data: nonsense\n\n",
        b'data: {"error":{"message":"broke"}}\n\n',
        event({"content": 5}),
        event({"tool_calls": [{"index": "first"}]}),
        b'data: {"id":"c1","choices":[{"index":[]}]}\n\n',
    ],
)
def test_a_stream_that_cannot_be_read_comes_to_nothing(broken: bytes) -> None:
    assert assembled(event({"content": "He"}), broken) is None
    assert assembled() is None


def test_a_node_cannot_make_it_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for index in (-1, stored_chat.CALLS_MAX, 10**12):
        found = assembled(event({"content": "x", "tool_calls": [{"index": index, "id": "c"}]}))
        assert found is not None
        assert found["choices"][0]["message"]["tool_calls"] == []
    many = assembled(*(event({"content": "x"}, index=index) for index in range(stored_chat.CHOICES_MAX + 5)))
    assert many is not None
    assert len(many["choices"]) == stored_chat.CHOICES_MAX
    monkeypatch.setattr(stored_chat, "STORED_STREAM_BYTES_MAX", 10)
    assert assembled(event({"content": "x"})) is None


def test_a_whole_reply_is_a_completion_or_nothing() -> None:
    assert read_whole(b'{"id":"c1","choices":[{}]}') == {"id": "c1", "choices": [{}]}
    for body in (b"", b"[]", b"{}", b'{"id":5,"choices":[{}]}', b'{"id":"c1","choices":[]}'):
        assert read_whole(body) is None


def test_messages_are_listed_with_ids_and_their_parts() -> None:
    parts = [{"type": "text", "text": "Hi"}]
    body = json.dumps({"messages": [{"role": "user", "content": "A"}, {"role": "user", "content": parts}]}).encode()
    first, second = messages_of(body, "c1")
    assert (first["id"], first["content"], first["content_parts"]) == ("c1-0", "A", None)
    assert (second["id"], second["content"], second["content_parts"]) == ("c1-1", None, parts)
    assert metadata_of(body) == {}
