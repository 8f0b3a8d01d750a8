"""Chunks that are passed on unread leave the same behind as chunks that were read."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.dispatch.reply import ChunkShape, StreamReply

TEXT = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", "\n", "é", " a", '","finish_reason":"stop"', "data: x\n\n", "\r"]
)
DONE = b"data: [DONE]\n\n"


class Unread(StreamReply):
    """Reads every chunk."""

    def forward_unread(self, data: bytes) -> bytes | None:
        return None


def event(delta: dict[str, object], *, spaced: bool, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = msgspec.json.encode({"id": "c1", "model": "m", "choices": [choice]})
    return b"data: " + (msgspec.json.format(data, indent=0) if spaced else data) + b"\n\n"


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    spaced = draw(st.booleans())
    events = [event({"role": "assistant", "content": draw(TEXT)}, spaced=spaced)]
    events += [event({"content": text}, spaced=spaced) for text in draw(st.lists(TEXT, max_size=12))]
    odd = st.sampled_from(
        [
            event({"content": "x", "tool_calls": []}, spaced=spaced),
            event({"reasoning": "x"}, spaced=spaced),
            event({"reasoning_content": "y"}, spaced=spaced),
            event({"content": "x", "junk": "content"}, spaced=spaced),
            event({"content": None}, spaced=spaced),
            event({"content": "end"}, spaced=spaced, finish="stop"),
            b": a comment\n\n",
            b"data: null\n\n",
        ]
    )
    for at in draw(st.lists(st.integers(1, 12), max_size=4)):
        events.insert(at, draw(odd))
    return [*events, DONE]


@given(answers(), st.integers(1, 5), st.sampled_from([None, b'"another name"', b'"m"']))
def test_what_is_passed_on_unread_counts_the_same(events: list[bytes], at_once: int, name: bytes | None) -> None:
    """Also where the model has another name for the client."""
    quick = StreamReply(wants_usage=False, reply_model=name)
    thorough = Unread(wants_usage=False, reply_model=name)
    for first in range(0, len(events), at_once):
        data = b"".join(events[first : first + at_once])
        unread = quick.forward_unread(data)
        passed = quick.feed(data).data if unread is None else unread
        assert passed == thorough.feed(data).data
        assert name is None or b'"m"' not in passed.replace(name, b"")
    assert (quick.delivered, quick.started, quick.done) == (thorough.delivered, thorough.started, thorough.done)
    assert quick.emitted.is_more_than_text == thorough.emitted.is_more_than_text
    assert quick.emitted.text() == thorough.emitted.text()
    assert quick.units() == thorough.units()
    assert quick.end() == thorough.end()


BEFORE, AFTER = b'data: {"content":"', b'"}\n\n'
ODD = [b"a", b"\\", b"\\n", b'\\"', b"n", b'"', AFTER, BEFORE, AFTER + BEFORE]
INSIDE = st.binary(max_size=20) | st.sampled_from(ODD)


def is_inside_of_a_string(middle: bytes) -> bool:
    """What a strict reader says. Numbered characters are not looked into."""
    try:
        json.loads(b'"' + middle + b'"')
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False
    return b"\\u" not in middle


@given(INSIDE)
def test_nothing_that_could_end_the_text_is_taken_for_text(middle: bytes) -> None:
    found = ChunkShape(BEFORE, AFTER).text_of(BEFORE + middle + AFTER)
    assert found in (middle, None)
    if middle.isascii():
        assert (found is not None) == (bool(middle) and is_inside_of_a_string(middle))


@given(st.lists(INSIDE, min_size=1, max_size=6))
def test_several_events_are_alike_if_each_of_them_is(middles: list[bytes]) -> None:
    shape = ChunkShape(BEFORE, AFTER)
    events = b"".join(BEFORE + middle + AFTER for middle in middles)
    split = [event + b"\n\n" for event in events.split(b"\n\n")[:-1]]
    each = [shape.text_of(event) for event in split]
    assert shape.texts_of(events) == (None if None in each else each)


@given(st.lists(st.sampled_from([BEFORE, AFTER, b"a", b'"', b"\n\n", b"\\"]), max_size=8))
def test_bytes_that_are_no_events_of_the_shape_are_left_to_be_read(parts: list[bytes]) -> None:
    data = b"".join(parts)
    texts = ChunkShape(BEFORE, AFTER).texts_of(data)
    assert not texts or b"".join(BEFORE + text + AFTER for text in texts) == data
