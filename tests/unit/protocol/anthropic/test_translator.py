from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import JobFailed
from sparewatt.protocol.anthropic.translator import usage_of
from tests.unit.protocol.anthropic.anthropic_requests import Json, a_translator, events_of, kinds, whole_of
from tests.unit.protocol.responses.builders import FINISH, call_delta, chunk, usage_chunk

COUNTS = usage_chunk(prompt_tokens=7, completion_tokens=2, prompt_tokens_details={"cached_tokens": 5}, cost=1e-6)


def both(*calls: Json) -> Json:
    return {"tool_calls": [call for each in calls for call in each["tool_calls"]]}


def test_text_is_one_block_of_deltas() -> None:
    events = events_of(a_translator(), chunk({"content": "Hel"}), chunk({"content": "lo"}), FINISH, COUNTS)
    assert [event["type"] for event in events] == [
        *("message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert events[2]["content_block"] == {"type": "text", "text": ""}
    assert [event["delta"] for event in events[3:5]] == [
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo"},
    ]
    assert events[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 2,
            "cost": 1e-6,
        },
    }


def test_the_first_event_has_an_empty_message() -> None:
    message = a_translator().begin()[0]["message"]
    assert (message["id"], message["model"], message["role"]) == ("msg_1", "llama", "assistant")
    assert (message["content"], message["stop_reason"], message["usage"]["output_tokens"]) == ([], None, 0)


def test_thinking_is_a_block_before_the_text() -> None:
    chunks = chunk({"reasoning_content": "Hm."}), chunk({"content": "Yes."}), FINISH
    assert kinds(events_of(a_translator(shows_thinking=True), *chunks)) == [
        *("thinking", "delta", "stop"),
        *("text", "delta", "stop"),
    ]
    thought, text = whole_of(a_translator(shows_thinking=True), *chunks)["content"]
    assert thought == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert text == {"type": "text", "text": "Yes."}


def test_thinking_that_was_not_asked_for_is_left_out() -> None:
    message = whole_of(a_translator(), chunk({"reasoning": "Hm."}), chunk({"content": "Yes."}), FINISH)
    assert [block["type"] for block in message["content"]] == ["text"]


def test_a_call_is_written_in_pieces() -> None:
    head = chunk(call_delta("", name="look", call_id="call_1"))
    pieces = chunk(call_delta('{"a"')), chunk(call_delta(": 1}"))
    events = events_of(a_translator(), chunk({"content": "So:"}), head, *pieces, chunk(finish="tool_calls"))
    assert kinds(events) == ["text", "delta", "stop", "tool_use", "delta", "delta", "stop"]
    start = next(event for event in events if event.get("index") == 1)
    assert start["content_block"] == {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    assert [event["delta"]["partial_json"] for event in events if event.get("index") == 1 and "delta" in event] == [
        '{"a"',
        ": 1}",
    ]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_whole_call_has_its_input_as_an_object() -> None:
    message = whole_of(a_translator(), chunk(call_delta('{"a": 1}', name="look", call_id="c"), finish="tool_calls"))
    assert message["content"] == [{"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}}]


def test_calls_that_a_server_writes_at_once_are_told_one_after_the_other() -> None:
    chunks = [
        chunk(both(call_delta("", name="a", call_id="1"), call_delta("", index=1, name="b", call_id="2"))),
        chunk(both(call_delta('{"x":', index=0), call_delta('{"y":', index=1))),
        chunk(both(call_delta("1}", index=0), call_delta("2}", index=1))),
        chunk(finish="tool_calls"),
    ]
    events = events_of(a_translator(), *chunks)
    indexes = [event["index"] for event in events if "index" in event]
    assert indexes == sorted(indexes)
    assert kinds(events).count("stop") == 2
    blocks = whole_of(a_translator(), *chunks)["content"]
    assert [(block["id"], block["name"], block["input"]) for block in blocks] == [
        ("1", "a", {"x": 1}),
        ("2", "b", {"y": 2}),
    ]


def test_calls_that_a_server_numbers_alike_are_told_apart_by_their_ids() -> None:
    first, second = call_delta("{}", name="a", call_id="1"), call_delta("{}", name="b", call_id="2")
    message = whole_of(a_translator(), chunk(first), chunk(second), chunk(finish="tool_calls"))
    assert [block["name"] for block in message["content"]] == ["a", "b"]


def test_a_call_begins_when_its_name_is_there() -> None:
    chunks = chunk(call_delta('{"x"', call_id="1")), chunk(call_delta(": 1}", name="look")), chunk(finish="tool_calls")
    (block,) = whole_of(a_translator(), *chunks)["content"]
    assert (block["name"], block["input"]) == ("look", {"x": 1})


def test_a_call_without_a_name_is_left_out() -> None:
    assert whole_of(a_translator(), chunk(call_delta("{}", call_id="1")), FINISH)["content"] == []


def test_an_id_that_clients_could_not_send_back_is_replaced() -> None:
    message = whole_of(a_translator(), chunk(call_delta("{}", name="look", call_id="functions.look:0")), FINISH)
    assert message["content"][0]["id"] == "toolu_1"


def test_no_arguments_are_an_empty_object() -> None:
    message = whole_of(a_translator(), chunk(call_delta("", name="look", call_id="c"), finish="tool_calls"))
    assert message["content"][0]["input"] == {}


def test_a_call_that_was_cut_off_is_left_out_of_a_whole_message() -> None:
    cut = chunk(call_delta('{"path": "/', name="delete", call_id="c"), finish="length")
    message = whole_of(a_translator(), chunk({"content": "So:"}), cut)
    assert [block["type"] for block in message["content"]] == ["text"]
    assert message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ["[1]", "rm -rf", '"x"'])
def test_arguments_that_are_no_object_fail_a_whole_message(arguments: str) -> None:
    """To call a tool without them may do harm."""
    with pytest.raises(JobFailed):
        whole_of(a_translator(), chunk(call_delta(arguments, name="look", call_id="c"), finish="tool_calls"))


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), (None, "end_turn")],
)
def test_a_finish_reason_becomes_a_stop_reason(finish: str | None, reason: str) -> None:
    assert whole_of(a_translator(), chunk({"content": "x"}, finish=finish))["stop_reason"] == reason


def test_a_call_is_the_reason_also_if_the_server_says_stop() -> None:
    message = whole_of(a_translator(), chunk(call_delta("{}", name="look", call_id="c")), FINISH)
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("told", "reason"), [("END", ("stop_sequence", "END")), (2, ("end_turn", None)), ("other", ("end_turn", None))]
)
def test_a_stop_sequence_is_told_if_the_server_tells_it(told: Any, reason: tuple[str, str | None]) -> None:
    message = whole_of(a_translator(stops=("END",)), chunk({"content": "x"}, finish="stop", stop_reason=told))
    assert (message["stop_reason"], message["stop_sequence"]) == reason


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "many"}, {"prompt_tokens": -5, "completion_tokens": -1}])
def test_counts_of_a_server_that_lies_are_never_negative(usage: Json | None) -> None:
    counts = usage_of(usage)
    assert all(counts[name] == 0 for name in ("input_tokens", "output_tokens", "cache_read_input_tokens"))


def test_no_more_is_cached_than_was_read() -> None:
    counts = usage_of({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 50}})
    assert (counts["input_tokens"], counts["cache_read_input_tokens"]) == (0, 3)
