from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.protocol.openai.continuation import (
    PREFILL,
    RAW,
    ContinuationTerms,
    continuation_terms,
    with_reduced_limits,
)

USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def terms(**fields: Any) -> ContinuationTerms:
    return continuation_terms("/v1/chat/completions", msgspec.json.encode({"model": "m", "messages": [USER]} | fields))


def test_plain_text_can_be_continued_by_either_method() -> None:
    assert terms() == ContinuationTerms(frozenset({PREFILL, RAW}), choices=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"response_format": {"type": "text"}},
        {"tools": []},
        {"tools": TOOLS, "tool_choice": "none"},
        {"logprobs": False},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"messages": [USER, {"role": "assistant", "content": "So"}]},
    ],
)
def test_fields_at_their_defaults_do_not_prevent_continuation(fields: dict[str, Any]) -> None:
    assert terms(**fields).methods == {PREFILL, RAW}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS},
        {"functions": [{"name": "f"}]},
        {"logprobs": True},
        {"top_logprobs": 0},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ],
)
def test_some_answers_need_a_chat_endpoint(fields: dict[str, Any]) -> None:
    assert terms(**fields).methods == {PREFILL}


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"best_of": 3},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"guided_choice": ["a", "b"]},
        {"structured_outputs": {"regex": "a"}},
        {"grammar": "root ::= x"},
        {"echo": True},
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": []}]},
        {"messages": 7},
        {"response_format": "json"},
    ],
)
def test_some_answers_cannot_be_continued(fields: dict[str, Any]) -> None:
    found = terms(**fields)
    assert not found.methods
    assert found.why_not


def test_a_plain_completion_is_continued_by_a_raw_prompt() -> None:
    assert continuation_terms("/v1/completions", b'{"model":"m","prompt":"x"}').methods == {RAW}


@pytest.mark.parametrize(
    "more", [{"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"suffix": "."}, {"logprobs": 2}, {"echo": True}]
)
def test_other_completions_cannot_be_continued(more: dict[str, Any]) -> None:
    assert not continuation_terms("/v1/completions", msgspec.json.encode({"model": "m", "prompt": "x"} | more)).methods


def test_embeddings_cannot_be_continued() -> None:
    assert not continuation_terms("/v1/embeddings", b'{"model":"m","input":"x"}').methods


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"{}", b"\xff"])
def test_an_unreadable_request_cannot_be_continued(body: bytes) -> None:
    assert not continuation_terms("/v1/chat/completions", body).methods


@pytest.mark.parametrize(("stop", "found"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b")), ([""], ()), (3, ())])
def test_stop_texts_are_read_in_every_shape(stop: object, found: tuple[str, ...]) -> None:
    assert terms(stop=stop).stops == found


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 9, "max_completion_tokens": 4}, 4),
    ],
)
def test_the_limit_is_the_one_that_counts(fields: dict[str, Any], limit: int | None) -> None:
    assert terms(**fields).output_limit == limit


def test_token_limits_shrink_by_what_was_written() -> None:
    body = b'{"max_tokens":10,"max_completion_tokens":8,"min_tokens":3,"messages":[{"x":1.0}],"seed":7}'
    less = msgspec.json.decode(with_reduced_limits(body, 5))
    assert less == {"max_tokens": 5, "max_completion_tokens": 3, "min_tokens": 0, "messages": [{"x": 1.0}], "seed": 7}


def test_a_request_without_limits_gets_none() -> None:
    assert with_reduced_limits(b'{"max_tokens":null,"seed":7}', 5) == b'{"max_tokens":null,"seed":7}'
