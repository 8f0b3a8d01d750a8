"""A streamed reply becomes one piece, however the link cuts it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.assembled_reply import AssembledReply
from sparewatt.inference.dispatch.model import BilledAnswer
from sparewatt.inference.dispatch.reply import ReplyBroken, event_data
from sparewatt.protocol.openai.chat import Usage
from sparewatt.protocol.openai.stream_accumulator import StreamAccumulator
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, text_event

WIRE = ROLE + text_event("Hel") + text_event("lo") + b": a comment\n\n" + FINISH + USAGE + DONE


@pytest.mark.parametrize("size", [1, 7, len(WIRE)])
def test_the_pieces_become_an_answer(size: int) -> None:
    reply = AssembledReply()
    for at in range(0, len(WIRE), size):
        reply.feed(WIRE[at : at + size])
    whole = json.loads(reply.end())
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert reply.tokens == 2
    assert reply.delivered.completion_tokens == 2


def test_it_has_started_once_there_is_more_than_a_role() -> None:
    reply = AssembledReply()
    reply.feed(ROLE)
    assert not reply.started
    reply.feed(text_event("a"))
    assert reply.started


def test_price_and_name_are_those_of_any_reply() -> None:
    reply = AssembledReply(
        bill=lambda _seen, _units: BilledAnswer(Usage(4, 2), Nano(500_000_000)), reply_model=b'"mine"'
    )
    reply.feed(WIRE.replace(b'"id":"c1"', b'"id":"c1","model":"theirs"'))
    whole = json.loads(reply.end())
    assert (whole["usage"]["cost"], whole["model"]) == (0.5, "mine")


def test_a_server_that_does_not_stream_is_read_as_it_comes() -> None:
    reply = AssembledReply(reply_model=b'"mine"').unstreamed()
    reply.feed(COMPLETION)
    assert reply.end() == COMPLETION


@pytest.mark.parametrize(
    "data", [b"data: <html>\n\n", b'data: {"error":{"message":"marker"}}\n\n', b"x" * (SSE_EVENT_BYTES_MAX + 1)]
)
def test_what_is_no_stream_breaks_it_in_our_words(data: bytes) -> None:
    with pytest.raises(ReplyBroken) as caught:
        AssembledReply().feed(data)
    assert "marker" not in str(caught.value)


def test_a_stream_without_end_is_no_answer() -> None:
    reply = AssembledReply()
    reply.feed(text_event("a"))
    with pytest.raises(ReplyBroken, match="ended early"):
        reply.end()


def chunk_event(delta: dict[str, Any], *, escape: bool = False, **top: Any) -> bytes:
    chunk = {"id": "c1", **top, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=escape, separators=(",", ":")).encode() + b"\n\n"


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", '"}', "\n", "é", "漢"]
)
events = st.builds(
    chunk_event,
    st.sampled_from(["content", "content", "content", "reasoning", "reasoning_content"]).flatmap(
        lambda name: words.map(lambda text: {name: text})
    ),
    escape=st.booleans(),
    created=st.integers(1, 2),
)


@given(st.lists(events, max_size=30), st.integers(1, 400))
def test_events_whose_text_is_cut_out_become_the_same_as_events_that_are_read(told: list[bytes], size: int) -> None:
    wire = b"".join([ROLE, *told, FINISH, USAGE, DONE])
    reply, read = AssembledReply(), StreamAccumulator()
    for at in range(0, len(wire), size):
        reply.feed(wire[at : at + size])
    for event in (ROLE, *told, FINISH, USAGE, DONE):
        data = event_data(event)
        assert data is not None
        read.add(data)
    assert json.loads(reply.end())["choices"] == json.loads(read.body())["choices"]
    assert reply.chunks_seen == len(told) + 4


def test_most_events_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read, plain = list[bytes](), StreamAccumulator._read_chunk

    def note(accumulator: StreamAccumulator, data: bytes) -> None:
        read.append(data)
        plain(accumulator, data)

    monkeypatch.setattr(StreamAccumulator, "_read_chunk", note)
    AssembledReply().feed(ROLE + b"".join(text_event(f"word {number} ") for number in range(100)) + FINISH)
    assert len(read) == 3


def test_text_that_is_no_utf_8_breaks_it_at_once() -> None:
    reply = AssembledReply()
    reply.feed(text_event("a") + text_event("b"))
    with pytest.raises(ReplyBroken):
        reply.feed(text_event("c").replace(b"c", b"\xff"))
