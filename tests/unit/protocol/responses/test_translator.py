from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import JobFailed
from sparewatt.protocol.responses.chat_chunks import read_chunk
from tests.unit.protocol.responses.builders import (
    FINISH,
    Json,
    a_translator,
    call_delta,
    chunk,
    events_of,
    kinds,
    usage_chunk,
)

TEXT_EVENTS = [
    *("created", "in_progress", "output_item.added", "content_part.added"),
    *("output_text.delta", "output_text.delta"),
    *("output_text.done", "content_part.done", "output_item.done", "completed"),
]


def test_text_is_one_message_with_one_part() -> None:
    translator = a_translator()
    first, second = chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"})
    counts = usage_chunk(
        prompt_tokens=5,
        completion_tokens=2,
        prompt_tokens_details={"cached_tokens": 3},
        completion_tokens_details={"reasoning_tokens": 1},
        cost=1e-6,
    )
    events = events_of(translator, chunk({"role": "assistant", "content": ""}), first, second, FINISH, counts)
    assert kinds(events) == TEXT_EVENTS
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["delta"] for event in events if "delta" in event] == ["Hel", "lo"]
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert response["completed_at"] == 200
    (item,) = response["output"]
    assert item == events[-2]["item"]
    assert item["content"] == [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 7,
        "cost": 1e-6,
    }


def test_the_first_events_show_the_response_as_it_begins() -> None:
    created, in_progress, *_ = events_of(a_translator(metadata={"a": "b"}), chunk({"content": "x"}), FINISH)
    for event in (created, in_progress):
        assert event["response"]["status"] == "in_progress"
        assert event["response"]["output"] == []
        assert event["response"]["metadata"] == {"a": "b"}


def test_calls_are_items_with_arguments_in_pieces() -> None:
    translator = a_translator()
    events = events_of(
        translator,
        chunk(call_delta("", name="weather", call_id="call_a")),
        chunk(call_delta('{"city"')),
        chunk(call_delta(':"Rome"}')),
        chunk(call_delta("{}", index=1, name="time", call_id="call_b")),
        chunk(finish="tool_calls"),
    )
    call = ("output_item.added", "function_call_arguments.delta")
    done = ("function_call_arguments.done", "output_item.done")
    assert kinds(events)[2:-1] == [*call, "function_call_arguments.delta", *done, *call, *done]
    first, second = translator.response["output"]
    assert (first["call_id"], first["name"], first["arguments"]) == ("call_a", "weather", '{"city":"Rome"}')
    assert (second["call_id"], second["name"], second["arguments"]) == ("call_b", "time", "{}")
    assert first["status"] == second["status"] == translator.response["status"] == "completed"


def test_calls_that_are_written_at_the_same_time_are_kept_apart() -> None:
    translator = a_translator()
    events_of(
        translator,
        chunk(call_delta('{"a"', index=0, name="one", call_id="x")),
        chunk(call_delta('{"b"', index=1, name="two", call_id="y")),
        chunk(call_delta(":1}", index=0)),
        chunk(call_delta(":2}", index=1)),
        chunk(finish="tool_calls"),
    )
    assert [item["arguments"] for item in translator.response["output"]] == ['{"a":1}', '{"b":2}']


def test_calls_with_the_same_number_are_told_apart_by_their_ids_and_one_without_gets_one() -> None:
    translator = a_translator()
    events_of(
        translator,
        chunk(call_delta("{}", name="one", call_id="x")),
        chunk(call_delta("{}", name="two", call_id="y")),
        chunk(finish="tool_calls"),
    )
    assert [item["call_id"] for item in translator.response["output"]] == ["x", "y"]
    nameless = a_translator()
    events_of(nameless, chunk(call_delta("{}", index=None, name="one")))
    assert nameless.response["output"][0]["call_id"].startswith("call_")


def test_reasoning_text_and_calls_keep_their_order() -> None:
    translator = a_translator()
    events = events_of(
        translator,
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": "m"}),
        chunk({"content": "Look:"}),
        chunk(call_delta("{}", name="look", call_id="c")),
        chunk({"content": "Done."}),
        FINISH,
    )
    assert [item["type"] for item in translator.response["output"]] == [
        *("reasoning", "message", "function_call", "message")
    ]
    assert translator.response["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hmm"}]
    opened = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert opened == [0, 1, 2, 3]
    assert_each_is_closed_before_the_next(events)


def assert_each_is_closed_before_the_next(events: list[Json]) -> None:
    marks = [event["type"] for event in events if "output_item" in event["type"]]
    assert marks == ["response.output_item.added", "response.output_item.done"] * (len(marks) // 2)


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_is_incomplete(finish: str, reason: str) -> None:
    events = events_of(a_translator(), chunk({"content": "Hel"}), chunk(finish=finish))
    assert kinds(events)[-1] == "incomplete"
    response = events[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert response["completed_at"] is None
    assert response["output"][0]["status"] == "incomplete"


def test_an_empty_answer_is_an_empty_message() -> None:
    events = events_of(a_translator(), FINISH)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ""


def test_an_error_in_the_stream_ends_it_as_failed_and_then_as_an_error() -> None:
    broken = read_chunk(b'{"error":{"message":"The node was lost.","type":"server_error","code":"node_failed"}}')
    assert broken is not None
    events = events_of(a_translator(), chunk({"content": "Hel"}), broken)
    assert kinds(events)[-3:] == ["output_item.done", "failed", "error"]
    response = events[-2]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "The node was lost."}
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert events[-1]["error"]["message"] == events[-1]["message"] == "The node was lost."
    assert events[-1]["error"]["code"] == "node_failed"


def test_a_failure_before_the_first_chunk_is_sent_as_well() -> None:
    translator = a_translator()
    events = [*translator.begin(), *translator.fail(JobFailed("No node.")), *translator.final_events()]
    assert kinds(events) == ["created", "in_progress", "failed", "error"]


def test_a_cancelled_answer_keeps_what_was_written() -> None:
    translator = a_translator()
    events = [
        *translator.begin(),
        *translator.feed(chunk({"content": "Hel"})),
        *translator.cancel(),
        *translator.final_events(),
    ]
    assert kinds(events)[-1] == "incomplete"
    assert events[-1]["response"]["status"] == "cancelled"
    assert translator.response["output"][0]["content"][0]["text"] == "Hel"


def test_logprobs_go_with_the_text() -> None:
    scores = [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]
    events = events_of(a_translator(), chunk({"content": "Hi"}, logprobs={"content": scores}), FINISH)
    (delta,) = (event for event in events if event["type"] == "response.output_text.delta")
    assert delta["logprobs"] == scores
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == scores


def test_a_whole_reply_comes_to_the_same_as_its_chunks() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hello", "tool_calls": [call], "reasoning_content": "Hm"}
    counts = {"prompt_tokens": 1, "completion_tokens": 2}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": counts}
    reply = read_chunk(json.dumps(body).encode())
    assert reply is not None
    whole, streamed = a_translator(), a_translator()
    events_of(whole, reply)
    pieces = [chunk({"reasoning_content": "Hm"}), chunk({"content": "Hel"}), chunk({"content": "lo"})]
    call_chunk = chunk(call_delta("{}", name="look", call_id="c"))
    events_of(streamed, *pieces, call_chunk, chunk(finish="tool_calls"), usage_chunk(**counts))
    assert whole.response == streamed.response
