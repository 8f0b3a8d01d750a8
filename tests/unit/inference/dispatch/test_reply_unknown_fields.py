"""What no client reads does not pass, on the fast path neither; and nothing that was not asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.inference.dispatch.reply import StreamReply, WholeReply
from sparewatt.inference.text_units import CompletionUnits, TextUnits, units_of
from tests.unit.inference.scripted import DONE, FINISH, ROLE


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": None}
    data = json.dumps({"id": "c1", **more, "choices": [choice]}, separators=(",", ":"))
    return b"data: " + data.encode() + b"\n\n"


def test_chunks_with_an_unknown_field_that_stays_the_same_are_forwarded_unread_without_it() -> None:
    reply = StreamReply(wants_usage=False)
    first = reply.feed(chunk({"content": "a"}, timings={"n": 1})).data
    assert first == chunk({"content": "a"})
    assert reply.forward_unread(chunk({"content": " b"}, timings={"n": 1})) == chunk({"content": " b"})
    both = chunk({"content": " c"}, timings={"n": 1}) + chunk({"content": " d"}, timings={"n": 1})
    assert reply.forward_unread(both) == chunk({"content": " c"}) + chunk({"content": " d"})
    assert reply.emitted.text() == "a b c d"


def test_an_unknown_field_that_changes_is_read_and_dropped_each_time() -> None:
    reply = StreamReply(wants_usage=False)
    for number in range(5):
        event = chunk({"content": "a", "junk": "x" * number})
        assert reply.forward_unread(event) is None
        assert reply.feed(event).data == chunk({"content": "a"})


def test_text_that_hides_behind_an_unknown_field_of_the_same_name_is_not_sent_for_nothing() -> None:
    """Whatever of such chunks becomes the text: the client gets what is counted."""
    reply, sent = StreamReply(wants_usage=False), b""
    for number in range(4):
        event = chunk({"content": "a"}, zz={"content": "a" if not number else f"hidden {number}"})
        unread = reply.forward_unread(event)
        sent += reply.feed(event).data if unread is None else unread
    shown = "".join(json.loads(line[6:])["choices"][0]["delta"]["content"] for line in sent.split(b"\n\n") if line)
    assert reply.emitted.text() == shown


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_forwarded_unread_and_counted(field: str) -> None:
    reply = StreamReply(wants_usage=False)
    reply.feed(ROLE + chunk({field: "Let me"}))
    assert reply.forward_unread(chunk({field: " think"})) == chunk({field: " think"})
    shape = reply.direct_shape()
    assert shape is not None
    shape[-1].extend(b" now")
    assert reply.forward_unread(chunk({"content": "Yes"})) is None
    reply.feed(chunk({"content": "Yes"}))
    assert reply.forward_unread(chunk({"content": " no"})) is not None
    reply.feed(FINISH + DONE)
    assert reply.units() == CompletionUnits(units_of("Let me think now") + units_of("Yes no"), choices=1)


def test_answers_that_were_not_asked_for_do_not_pass_and_do_not_count() -> None:
    reply = StreamReply(wants_usage=False, answers=2)
    assert reply.feed(chunk({"content": "x"}, index=7)).data == b""
    assert not reply.started
    passed = reply.feed(chunk({"content": "a"}) + chunk({"content": "b"}, index=1) + chunk({"content": "c"}, index=-1))
    assert passed.data == chunk({"content": "a"}) + chunk({"content": "b"}, index=1)
    assert (reply.units().choices, reply.delivered.text_bytes) == (2, 2)


def test_of_a_whole_answer_only_what_was_asked_for_is_left() -> None:
    reply = WholeReply(answers=1)
    choices = [{"index": 0, "message": {"content": "Hi", "x": 1}}, {"index": 7, "message": {"content": "more"}}]
    reply.feed(json.dumps({"id": "c", "choices": choices, "timings": {}}).encode())
    message = {"role": "assistant", "content": "Hi", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    assert json.loads(reply.end()) == {"id": "c", "choices": [choice]}
    assert reply.units() == CompletionUnits(units_of("Hi"), choices=1)


def test_text_is_counted_by_choice_and_field_however_it_is_interleaved() -> None:
    reply = StreamReply(wants_usage=False, answers=2)
    for piece in ("Hel", "lo wor", "ld"):
        reply.feed(chunk({"content": piece}) + chunk({"content": piece}, index=1))
    assert reply.units() == CompletionUnits(units_of("Hello world") + units_of("Hello world"), choices=2)


def test_tool_calls_are_counted_by_their_names_and_their_arguments_by_their_text() -> None:
    reply = StreamReply(wants_usage=False)
    for function in ({"name": "ge"}, {"name": "t"}, {"arguments": '{"city":'}, {"arguments": ' "Paris"}'}):
        reply.feed(chunk({"tool_calls": [{"index": 0, "function": function}]}))
    text = units_of("get") + units_of('{"city": "Paris"}')
    assert reply.units() == CompletionUnits(text, choices=1, tool_calls=1)


def test_tool_calls_beyond_a_bound_count_as_one() -> None:
    reply, calls = StreamReply(wants_usage=False), [{"index": at, "function": {"name": "f"}} for at in range(999)]
    reply.feed(chunk({"tool_calls": [*calls, {"index": -7, "function": {"name": "f"}}]}))
    assert reply.units().tool_calls == 65
    whole, unnumbered = WholeReply(), [{"function": call["function"]} for call in calls]
    whole.feed(json.dumps({"choices": [{"message": {"tool_calls": unnumbered}}]}).encode())
    whole.end()
    assert whole.units().tool_calls == 65


def test_a_very_long_answer_is_counted_piece_by_piece() -> None:
    reply, text = StreamReply(wants_usage=False), "word " * 200
    for _ in range(100):
        event = chunk({"reasoning": text})
        if reply.forward_unread(event) is None:
            reply.feed(event)
    found = reply.units().text
    assert isinstance(found, TextUnits)
    assert 20_000 <= found.english_words + found.words <= 20_010


@pytest.mark.parametrize("text", [rb"\ud800", rb"\u00zz"])
def test_text_that_cannot_be_decoded_breaks_the_stream(text: bytes) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text
    assert StreamReply(wants_usage=False).feed(event).broken is not None
