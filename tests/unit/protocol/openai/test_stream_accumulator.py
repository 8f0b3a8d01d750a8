"""A whole answer is put together from a stream, as the server would have sent it without streaming."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.stream_accumulator import BrokenStream, StreamAccumulator, can_be_streamed


def chunk(index: int = 0, **delta: Any) -> bytes:
    return b"data: " + json.dumps({"id": "x", "choices": [{"index": index, "delta": delta}]}).encode() + b"\n\n"


def usage(prompt: int, written: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def feed(assembler: StreamAccumulator, events: bytes) -> None:
    for event in events.split(b"\n\n")[:-1]:
        assembler.add(event.removeprefix(b"data: "))


def assembled(*pieces: bytes) -> dict[str, Any]:
    assembler = StreamAccumulator()
    feed(assembler, b"".join(pieces))
    found: dict[str, Any] = json.loads(assembler.body())
    return found


DONE = b"data: [DONE]\n\n"


def test_the_pieces_of_an_answer_are_joined() -> None:
    whole = assembled(chunk(role="assistant"), chunk(content="Hel"), chunk(content="lo"), usage(3, 2), DONE)
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert whole["usage"]["total_tokens"] == 5


def test_several_choices_stay_separate_and_their_usage_is_summed() -> None:
    whole = assembled(chunk(1, content="b"), chunk(0, content="a"), usage(31, 4), usage(31, 5), DONE)
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["a", "b"]
    assert whole["usage"] == {"prompt_tokens": 31, "completion_tokens": 9, "total_tokens": 40}


def test_a_tool_call_is_put_together_from_its_pieces() -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": text}} for text in ('{"city"', ':"Rome"}')]
    whole = assembled(*(chunk(tool_calls=[piece]) for piece in (first, *pieces)), DONE)
    call = whole["choices"][0]["message"]["tool_calls"][0]
    assert call == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
    }


@pytest.mark.parametrize("pieces", [(chunk(content="a"),), (b"data: nonsense\n\n",), (b'data: {"error": {}}\n\n',)])
def test_what_is_no_whole_answer_is_not_made_one(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(BrokenStream):
        assembled(*pieces)


def text_chunk(text: str, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "text": text, **more}
    return b"data: " + json.dumps({"object": "text_completion", "choices": [choice]}).encode() + b"\n\n"


def test_a_text_completion_is_put_together_too() -> None:
    logprobs = [{"tokens": [each], "token_logprobs": [-1.0]} for each in ("a", "b")]
    whole = assembled(
        text_chunk("a", logprobs=logprobs[0]),
        text_chunk("x", index=1),
        text_chunk("b", logprobs=logprobs[1]),
        text_chunk("", finish_reason="stop"),
        usage(3, 3),
        DONE,
    )
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [
        {
            "index": 0,
            "text": "ab",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, -1.0]},
            "finish_reason": "stop",
        },
        {"index": 1, "text": "x", "logprobs": None, "finish_reason": None},
    ]


@pytest.mark.parametrize(
    ("path", "body", "can"),
    [
        ("/v1/chat/completions", b'{"best_of":2}', True),
        ("/v1/completions", b"{}", True),
        ("/v1/completions", b'{"best_of":2}', False),
        ("/v1/embeddings", b"{}", False),
    ],
)
def test_some_answers_only_come_whole(path: JobPath, body: bytes, *, can: bool) -> None:
    assert can_be_streamed(path, body) is can


@pytest.mark.parametrize(("prompts", "read"), [(1, 3), (2, 6)])
def test_texts_that_are_counted_one_by_one_are_counted_together(prompts: int, read: int) -> None:
    """llama.cpp says what each has read and written as it ends, and streams a null now and then."""
    counts = {"prompt_tokens": 3, "completion_tokens": 2}
    ends = [
        json.dumps({"choices": [{"index": i, "text": "", "finish_reason": "stop"}], "usage": counts}) for i in (0, 1)
    ]
    assembler = StreamAccumulator(prompts=prompts)
    feed(assembler, b"data: null\n\n" + text_chunk("a") + text_chunk("b", index=1))
    feed(assembler, b"".join(f"data: {end}\n\n".encode() for end in ends) + DONE)
    usage = json.loads(assembler.body())["usage"]
    assert usage == {"prompt_tokens": read, "completion_tokens": 4, "total_tokens": read + 4}
