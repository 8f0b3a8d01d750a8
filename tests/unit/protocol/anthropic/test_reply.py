from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import JobFailed, NoCapacity
from sparewatt.protocol.anthropic.reply import AnthropicReply
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, text_event
from tests.unit.protocol.anthropic.anthropic_requests import Json, a_translator

STREAM = ROLE + text_event("Hel") + text_event("lo") + FINISH + USAGE + DONE


def a_reply() -> AnthropicReply:
    return AnthropicReply(a_translator(), request_id="req_1")


def events(data: bytes) -> list[Json]:
    """Each event has its type twice, as Anthropic sends it."""
    found = []
    for event in data.decode().split("\n\n")[:-1]:
        name, line = event.split("\n")
        found.append(json.loads(line.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


@pytest.mark.parametrize("size", [1, 7, len(STREAM)])
def test_a_stream_is_translated_however_it_is_cut(size: int) -> None:
    reply = a_reply()
    data = reply.begin()
    for at in range(0, len(STREAM), size):
        data += reply.feed(STREAM[at : at + size])
    found = events(data + reply.finish())
    assert "".join(event["delta"].get("text", "") for event in found if "delta" in event) == "Hello"
    assert found[-1] == {"type": "message_stop"}


def test_a_whole_reply_is_a_message() -> None:
    message = json.loads(a_reply().whole(COMPLETION))
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "end_turn")
    assert message["content"][0]["type"] == "text"


def test_a_whole_reply_that_is_none_is_a_failure() -> None:
    with pytest.raises(JobFailed):
        a_reply().whole(b"<html>")


def test_a_broken_stream_ends_in_an_error_and_no_message_stop() -> None:
    reply = a_reply()
    reply.feed(ROLE + text_event("Hel") + b'data: {"error": {"message": "it broke"}}\n\n')
    (last,) = events(reply.finish())
    assert (last["type"], last["error"]["message"]) == ("error", "it broke")


def test_an_error_after_the_stream_was_opened_is_its_last_event() -> None:
    (last,) = events(a_reply().fail(NoCapacity("Full.")))
    assert last == {"type": "error", "error": {"type": "overloaded_error", "message": "Full."}, "request_id": "req_1"}


def test_a_silent_stream_gets_a_ping() -> None:
    assert events(AnthropicReply.keep_alive) == [{"type": "ping"}]
