from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import BilledAnswer
from sparewatt.inference.dispatch.reply import (
    Biller,
    EventSplitter,
    ForwardedBytes,
    ReplyBroken,
    StreamReply,
    WholeReply,
    event_data,
)
from sparewatt.protocol.openai.chat import Usage
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, event, text_event

STREAM = ROLE + text_event("Hel") + text_event("lo") + FINISH + DONE


def a_reply(*, wants_usage: bool = False) -> StreamReply:
    return StreamReply(wants_usage=wants_usage)


# cutting into events


@pytest.mark.parametrize("blank_line", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_come_out_the_same_however_they_were_cut(blank_line: bytes, size: int) -> None:
    wire = STREAM.replace(b"\n\n", blank_line)
    splitter = EventSplitter()
    events = [e for at in range(0, len(wire), size) for e in splitter.feed(wire[at : at + size])]
    assert events == [e + blank_line for e in STREAM.split(b"\n\n") if e]
    assert splitter.rest == b""


def test_an_unfinished_event_is_the_rest() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b\n") == [b"data: a\n\n"]
    assert splitter.rest == b"data: b\n"


def test_an_endless_event_is_a_violation() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"x" * SSE_EVENT_BYTES_MAX) == []
    with pytest.raises(ProtocolViolation):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"event: delta\ndata: x\n\n", b"x"),
        (b"data: x\ndata: y\n\n", b"x\ny"),
        (b": ping\n\n", None),
        (b"event: ping\n\n", None),
    ],
)
def test_the_data_of_an_event(raw: bytes, data: bytes | None) -> None:
    assert event_data(raw) == data


# streams


def test_nothing_passes_before_the_first_token_and_then_everything_held() -> None:
    reply = a_reply()
    assert reply.feed(ROLE) == ForwardedBytes(b"")
    assert not reply.started
    assert reply.feed(text_event("Hi")) == ForwardedBytes(ROLE + text_event("Hi"))
    assert reply.started


@pytest.mark.parametrize(
    "delta", [{"content": "a"}, {"reasoning_content": "a"}, {"tool_calls": [{"index": 0}]}, {"refusal": "no"}]
)
def test_text_reasoning_tools_and_refusals_start_a_reply(delta: dict[str, object]) -> None:
    reply = a_reply()
    reply.feed(event(delta))
    assert reply.started


@pytest.mark.parametrize("delta", [{}, {"role": "assistant"}, {"content": ""}, {"content": None}, {"tool_calls": []}])
def test_an_empty_delta_starts_nothing(delta: dict[str, object]) -> None:
    reply = a_reply()
    reply.feed(event(delta))
    assert not reply.started


def test_usage_passes_only_if_it_was_asked_for() -> None:
    without, with_it = a_reply(), a_reply(wants_usage=True)
    wire = text_event("Hi") + USAGE + DONE
    assert without.feed(wire).data == text_event("Hi") + DONE
    assert with_it.feed(wire).data == wire
    assert without.tokens == with_it.tokens == 2


def test_usage_beside_choices_is_noted_and_told_once_at_the_end() -> None:
    reply = a_reply(wants_usage=True)
    choices = b'"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]'
    chunk = b'data: {%b,"usage":{"completion_tokens":%d}}\n\n'
    assert reply.feed(chunk % (choices, 1) + chunk % (choices, 2)).data == b"data: {%b}\n\n" % choices * 2
    ending = reply.feed(DONE).data
    assert msgspec.json.decode(ending.split(b"\n\n")[0][6:])["usage"]["completion_tokens"] == 2


def test_tokens_are_chunks_until_the_node_says_otherwise() -> None:
    reply = a_reply()
    reply.feed(ROLE + text_event("a") + text_event("b"))
    assert reply.tokens == 2


def test_comments_do_not_pass() -> None:
    assert a_reply().feed(b": keep-alive\n\n" + text_event("a") + b": ping\n\n").data == text_event("a")


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: <html>\n\n",
        b"data: {\n\n",
        b"data: 5\n\n",
        b'data: {"detail":"no"}\n\n',
        b"data: \xff\n\n",
        b"data:\n\n",
    ],
)
def test_garbage_breaks_a_stream_after_what_came_before_it(garbage: bytes) -> None:
    passed = a_reply().feed(text_event("a") + garbage + text_event("b"))
    assert passed.data == text_event("a")
    assert passed.broken is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (b'{"message":"CUDA out of memory"}', "out_of_memory"),
        (b'{"message":"stranger\'s words"}', "server_error"),
        (b'{"message":"no","code":400}', "bad_request"),
        (b"{}", "server_error"),
    ],
)
def test_an_error_event_breaks_a_stream_with_a_code_of_ours(error: bytes, code: str) -> None:
    broken = a_reply().feed(b'data: {"error":%b}\n\n' % error).broken
    assert str(broken) == f"the model server reported an error in its answer ({code})"


def test_a_chunk_after_done_breaks_a_stream() -> None:
    assert a_reply().feed(STREAM).broken is None
    assert a_reply().feed(STREAM + text_event("more")).broken is not None


def test_a_stream_that_says_nothing_for_long_is_broken() -> None:
    reply = a_reply()
    pieces = SSE_EVENT_BYTES_MAX // len(ROLE)
    assert reply.feed(ROLE * pieces).broken is None
    assert reply.feed(ROLE).broken is not None


def test_a_stream_ends_properly_only_after_done() -> None:
    reply = a_reply()
    reply.feed(text_event("a"))
    with pytest.raises(ReplyBroken):
        reply.end()
    reply.feed(DONE)
    assert reply.end() == b""


def test_half_an_event_at_the_end_breaks_a_stream() -> None:
    reply = a_reply()
    reply.feed(STREAM + b"data: {")
    with pytest.raises(ReplyBroken):
        reply.end()


def test_a_stream_without_any_token_is_given_out_at_its_end() -> None:
    reply = a_reply()
    assert reply.feed(ROLE + FINISH + DONE) == ForwardedBytes(b"")
    assert reply.end() == ROLE + FINISH + DONE


# whole replies


def test_a_whole_reply_comes_out_as_it_was_with_its_count() -> None:
    reply = WholeReply()
    reply.feed(COMPLETION[:20])
    reply.feed(COMPLETION[20:])
    assert reply.tokens == 0
    assert reply.end() == COMPLETION
    assert reply.tokens == 2
    assert reply.delivered.finish_reason == msgspec.json.decode(COMPLETION)["choices"][-1].get("finish_reason")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", COMPLETION[:-1], b'{"choices":5}', b"\xff"])
def test_a_whole_reply_that_is_no_completion_is_broken(body: bytes) -> None:
    reply = WholeReply()
    reply.feed(body)
    with pytest.raises(ReplyBroken):
        reply.end()


def test_a_whole_reply_is_bounded() -> None:
    reply = WholeReply()
    reply.feed(b"x" * REPLY_BODY_BYTES_MAX)
    with pytest.raises(ReplyBroken):
        reply.feed(b"x")


# counts


def usage_event(prompt: int, written: int) -> bytes:
    counts = (prompt, written, prompt + written)
    return b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n' % counts


def test_counts_of_several_answers_become_one_at_the_end() -> None:
    reply = a_reply(wants_usage=True)
    passed = reply.feed(ROLE + text_event("a") + usage_event(31, 4) + text_event("b") + usage_event(31, 5) + DONE)
    events = passed.data.split(b"\n\n")
    assert [b"usage" in event for event in events[:-1]] == [False, False, False, True, False]
    assert b'"completion_tokens":9' in events[3]
    assert b'"total_tokens":40' in events[3]
    assert reply.tokens == 9


def test_one_count_passes_as_it_is() -> None:
    reply = a_reply(wants_usage=True)
    assert usage_event(3, 4) in reply.feed(ROLE + text_event("a") + usage_event(3, 4) + DONE).data


def billed(prompt: int, written: int) -> Biller:
    return lambda _seen, _units: BilledAnswer(Usage(prompt, written), Nano(500_000_000))


def test_a_client_is_told_what_is_billed_whatever_the_node_claims() -> None:
    wire = ROLE + text_event("a") + usage_event(80, 4_000) + DONE
    told = StreamReply(wants_usage=True, bill=billed(4, 2)).feed(wire).data.split(b"\n\n")[-3]
    expected = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6, "cost": 0.5}
    assert msgspec.json.decode(told[6:])["usage"] == expected
    whole = WholeReply(bill=billed(4, 2))
    whole.feed(COMPLETION)
    assert msgspec.json.decode(whole.end())["usage"] == expected


def test_a_client_that_wants_usage_gets_it_from_a_node_that_sends_none() -> None:
    told = StreamReply(wants_usage=True, bill=billed(4, 2)).feed(ROLE + text_event("a") + DONE).data.split(b"\n\n")[-3]
    assert msgspec.json.decode(told[6:]) == {
        "id": "c1",
        "choices": [],
        "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6, "cost": 0.5},
    }
    whole = WholeReply(bill=billed(4, 2))
    whole.feed(b'{"choices":[{"message":{"content":"a"}}]}')
    assert msgspec.json.decode(whole.end())["usage"]["total_tokens"] == 6


def test_counts_with_bytes_that_are_no_text_break_the_stream_and_nothing_else() -> None:
    """Found by a fuzzer: the names of fields that nobody looks into are looked into when a cost is put beside them."""
    odd = b'data: {"choices":[],"usage":{"prompt_tokens":5,"compl\xdf":2}}\n\n'
    reply = StreamReply(wants_usage=True, bill=billed(5, 2))
    passed = reply.feed(ROLE + text_event("Hel") + odd + DONE)
    assert passed.broken is not None
    whole = WholeReply(bill=billed(5, 2))
    whole.feed(COMPLETION.replace(b'"usage":{', b'"usage":{"\xdf":1,'))
    with pytest.raises(ReplyBroken):
        whole.end()
