"""Log probabilities of text completions in their own shape, whatever a server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.api.inference.completions import read_completion_request
from sparewatt.api.inference.text_filters import TextLogprobs
from sparewatt.core.errors import InvalidField


def chat_token(text: str, score: float, *tops: tuple[str, float]) -> dict[str, Any]:
    ranked = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in tops]
    return {"token": text, "logprob": score, "bytes": None, "top_logprobs": ranked}


def reply(text: str, logprobs: dict[str, Any] | None, index: int = 0) -> bytes:
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
    return json.dumps({"id": "c", "choices": [choice]}).encode()


LLAMA = {"content": [chat_token("He", -0.1, ("He", -0.1), ("It", -2.0)), chat_token("llo", -0.5, ("llo", -0.5))]}
LISTS = {
    "tokens": ["He", "llo"],
    "token_logprobs": [-0.1, -0.5],
    "top_logprobs": [{"He": -0.1, "It": -2.0}, {"llo": -0.5}],
    "text_offset": [0, 2],
}


def lists_of(data: bytes) -> Any:
    return json.loads(data)["choices"][0]["logprobs"]


@pytest.mark.parametrize(
    "given", [LLAMA, LISTS, {**LISTS, "text_offset": [7, 9]}], ids=["llama.cpp", "vLLM", "offsets"]
)
def test_a_whole_reply_has_four_lists(given: dict[str, Any]) -> None:
    assert lists_of(TextLogprobs(2).whole(reply("Hello", given))) == LISTS


def test_only_as_many_of_the_likeliest_as_were_asked_for() -> None:
    assert lists_of(TextLogprobs(1).whole(reply("Hello", LLAMA)))["top_logprobs"] == [{"He": -0.1}, {"llo": -0.5}]
    assert lists_of(TextLogprobs(0).whole(reply("Hello", LLAMA)))["top_logprobs"] == [{}, {}]


def test_offsets_go_on_over_a_stream_for_each_choice() -> None:
    rewriter = TextLogprobs(2)
    pieces = [reply("Hello", LLAMA), reply("Hello", LLAMA, index=1), reply("Hello", LLAMA), reply("", None)]
    stream = b"".join(b"data: " + piece + b"\n\n" for piece in pieces) + b"data: [DONE]\n\n"
    written = rewriter.feed(stream[:50]) + rewriter.feed(stream[50:]) + rewriter.rest()
    *events, done, _ = written.split(b"\n\n")
    offsets = [(lists_of(event[6:]) or {}).get("text_offset") for event in events]
    assert offsets == [[0, 2], [0, 2], [5, 7], None]
    assert done == b"data: [DONE]"


def test_a_prompts_first_token_has_no_probability() -> None:
    echoed = {**LISTS, "token_logprobs": [None, -0.5], "top_logprobs": [None, {"llo": -0.5}]}
    assert lists_of(TextLogprobs(2).whole(reply("Hello", echoed))) == echoed


@pytest.mark.parametrize("given", [{"tokens": ["a", "b"]}, {"tokens": ["a", "b"], "token_logprobs": [-1.0]}])
def test_lists_that_are_too_short_are_filled_up(given: dict[str, Any]) -> None:
    lists = lists_of(TextLogprobs(2).whole(reply("ab", given)))
    assert {len(values) for values in lists.values()} == {2}


@pytest.mark.parametrize("data", [b"{", b'{"choices":[{"index":0,"text":5}]}'])
def test_what_is_no_completion_is_not_one(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        TextLogprobs(2).whole(data)


def test_zero_is_asked_for_as_one() -> None:
    call = read_completion_request(b'{"model":"m","prompt":"a","logprobs":0}')
    assert json.loads(call.body)["logprobs"] == 1
    assert call.needs == {"completions", "logprobs"}


@pytest.mark.parametrize("value", [-1, 21, "two", True])
def test_another_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidField) as caught:
        read_completion_request(json.dumps({"model": "m", "prompt": "a", "logprobs": value}).encode())
    assert caught.value.param == "logprobs"
