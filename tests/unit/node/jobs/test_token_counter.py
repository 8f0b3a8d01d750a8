"""Tokens are counted for the receipt as the answer passes through the node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.inference.dispatch.reply import StreamReply
from sparewatt.node.jobs.token_counter import TokenCounter


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text_event(text: str = "a", **more: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}], **more)


def usage(prompt: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": written}


DONE = b"data: [DONE]\n\n"
ROLE = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
STREAMS = {
    "nothing": ([DONE], (0, 0)),
    "no count of its own": ([ROLE, text_event(), text_event(), DONE], (0, 2)),
    "a count at the end": ([ROLE, text_event("abc"), event(choices=[], usage=usage(7, 3)), DONE], (7, 3)),
    "a count per answer": (
        [text_event(), event(choices=[], usage=usage(7, 3)), event(choices=[], usage=usage(7, 4)), DONE],
        (7, 7),
    ),
    "a count on the way": ([text_event(usage=usage(7, 1)), text_event(usage=usage(7, 2)), DONE], (7, 2)),
    "a count on the way and at the end": (
        [text_event(usage=usage(7, 1)), text_event(usage=usage(7, 2)), event(choices=[], usage=usage(7, 2)), DONE],
        (7, 2),
    ),
    "comments and junk": ([b": ping\n\n", b"data: {broken\n\n", text_event(), b"event: x\n\n", DONE], (0, 1)),
}


@pytest.mark.parametrize(("pieces", "expected"), STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_is_counted_however_it_is_cut(pieces: list[bytes], expected: tuple[int, int]) -> None:
    whole = b"".join(pieces)
    for size in (1, 7, 64, len(whole)):
        count = TokenCounter()
        for at in range(0, len(whole), size):
            count.feed(whole[at : at + size])
        count.end()
        assert (count.prompt_tokens, count.completion_tokens) == expected
        assert count.has_begun == (expected[1] > 0)


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "comments and junk"])
def test_the_node_counts_as_the_gateway_does(name: str) -> None:
    whole = b"".join(STREAMS[name][0])
    count, reply = TokenCounter(), StreamReply(wants_usage=True)
    count.feed(whole)
    count.end()
    reply.feed(whole)
    assert count.completion_tokens == reply.tokens


def test_lines_may_end_as_on_windows() -> None:
    count = TokenCounter()
    count.feed(text_event().replace(b"\n", b"\r\n"))
    assert count.completion_tokens == 1


def test_a_whole_answer_is_believed_once_it_is_complete() -> None:
    body = json.dumps({"choices": [{"message": {"content": "abc"}}], "usage": usage(7, 3)}).encode()
    count = TokenCounter()
    count.expect_whole()
    count.feed(body[:20])
    assert count.completion_tokens == 0
    count.feed(body[20:])
    count.end()
    assert (count.prompt_tokens, count.completion_tokens, count.has_begun) == (7, 3, False)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"choices": []}', b'{"choices":[],"usage":{"prompt_tokens":-1}}'])
def test_a_whole_answer_without_usage_counts_nothing(body: bytes) -> None:
    count = TokenCounter()
    count.expect_whole()
    count.feed(body)
    count.end()
    assert (count.prompt_tokens, count.completion_tokens) == (0, 0)


def test_its_buffer_is_bounded() -> None:
    streamed, whole = TokenCounter(), TokenCounter()
    whole.expect_whole()
    piece = b"x" * (3 << 20)
    for _ in range(8):
        streamed.feed(piece)
        whole.feed(piece)
    assert len(streamed._rest) <= SSE_EVENT_BYTES_MAX
    assert len(whole._rest) <= REPLY_BODY_BYTES_MAX + 1
    streamed.feed(b"\n" + text_event())
    assert streamed.completion_tokens == 1


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_input_breaks_it(pieces: list[bytes]) -> None:
    count = TokenCounter()
    for piece in pieces:
        count.feed(b"data: " + piece + b"\n")
    count.end()
    assert count.completion_tokens >= 0


def test_embeddings_count_their_prompt_tokens() -> None:
    count = TokenCounter()
    count.expect_whole()
    count.feed(b'{"object":"list","data":[],"usage":{"prompt_tokens":9,"total_tokens":9}}')
    count.end()
    assert (count.prompt_tokens, count.completion_tokens) == (9, 0)
