"""Clients get the fields that are known, and the same bytes where there is nothing else."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from sparewatt.protocol.openai.reply_fields import (
    CHUNK,
    COMPLETION,
    VECTORS,
    known_chunk,
    known_completion,
    known_fields,
    with_choices,
    without_usage,
)

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOKEN = {"token": "[", "logprob": -0.1, "bytes": [91], "top_logprobs": [{"token": "[", "logprob": -0.1, "bytes": None}]}
CITATION = {"url": "u", "title": "t", "start_index": 0, "end_index": 1}
COUNTS = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": None, **choice}]
    return {"id": "c1", "object": "chat.completion.chunk", "choices": choices}


PLAIN = {"choices": chunk({"content": "a"})["choices"]}
KNOWN = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hi"}, finish_reason=None),
    chunk({"reasoning_content": "hm", "reasoning": "hm", "refusal": None}),
    chunk({"tool_calls": [CALL]}, stop_reason=13),
    chunk({"content": "["}, logprobs={"content": [TOKEN], "refusal": None}),
    chunk({"content": "a", "annotations": [{"type": "url_citation", "url_citation": CITATION}]}),
    {"choices": [], "usage": {**COUNTS, "prompt_tokens_details": {"cached_tokens": 1}}},
    {"created": 5, "model": "m", "system_fingerprint": "f", "service_tier": None, "usage": None, "choices": []},
]
TEXT = {"index": 0, "text": "a", "finish_reason": None, "logprobs": None}
KNOWN_TEXTS = [
    {"choices": [TEXT]},
    {"choices": [TEXT | {"logprobs": {"tokens": ["[", "{"], "top_logprobs": [{"[": -1.0, "x": -2.0}, None]}}]},
    {"object": "text_completion", "choices": [], "usage": COUNTS},
]


@pytest.mark.parametrize("given", KNOWN)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_chunk_of_known_fields_is_the_same_object(given: dict[str, Any], indent: int | None) -> None:
    data = json.dumps(given, indent=indent).encode()
    assert known_chunk(data) is data
    assert known_fields(data, CHUNK) is data


@pytest.mark.parametrize("given", KNOWN_TEXTS)
def test_so_is_one_of_a_text_completion(given: dict[str, Any]) -> None:
    data = json.dumps(given).encode()
    assert known_chunk(data) is data


@pytest.mark.parametrize(
    ("given", "known"),
    [
        (chunk({"role": None, "content": "a", "tool_calls": None}), chunk({"content": "a"})),
        (chunk({"content": 5}), chunk({})),
        (chunk({"content": "a"}) | {"system_fingerprint": None}, chunk({"content": "a"})),
        (chunk({"content": "a"}) | {"created": 5.7}, chunk({"content": "a"}) | {"created": 5}),
        (chunk({"content": "a"}) | {"created": "now", "id": 5}, {"object": "chat.completion.chunk"} | PLAIN),
        ({"choices": [{"delta": {"content": "a"}}]}, PLAIN),
        (chunk({}, finish_reason="abort"), chunk({}, finish_reason="stop")),
        (chunk({}, logprobs={"content": []}), chunk({}, logprobs={"content": [], "refusal": None})),
        ({"choices": [TEXT | {"finish_reason": "tool_calls"}]}, {"choices": [TEXT | {"finish_reason": "stop"}]}),
        ({"choices": [{"text": None, "index": 0}], "usage": None}, {"choices": [TEXT | {"text": ""}]}),
    ],
    ids=[
        "nulls",
        "type",
        "null at the top",
        "fraction",
        "types at the top",
        "left out",
        "word",
        "logprobs",
        "text's word",
        "text",
    ],
)
def test_what_the_specification_forbids_is_removed_and_what_it_requires_filled_in(
    given: dict[str, Any], known: dict[str, Any]
) -> None:
    assert json.loads(known_chunk(json.dumps(given).encode())) == known


@pytest.mark.parametrize(
    "given",
    [
        chunk({"content": "Hi", "junk": "x" * 8192}),
        chunk({"content": "Hi", "content2": {"deep": [1, {"a": 2}]}}),
        chunk({"content": "Hi"}, junk=1),
        chunk({"content": "Hi"}) | {"timings": {"predicted_n": 5}},
        chunk({"content": "Hi", "tool_calls": [{"junk": 1}]}),
        chunk({"content": "Hi", "tool_calls": [{"function": {"junk": "x"}}]}),
        chunk({"content": "Hi"}, logprobs={"content": [{"id": 7}], "junk": 1}),
    ],
    ids=["delta", "object", "choice", "top", "tool call", "function", "logprobs"],
)
def test_unknown_fields_do_not_pass(given: dict[str, Any]) -> None:
    known = json.loads(known_chunk(json.dumps(given).encode()))
    assert "junk" not in json.dumps(known)
    assert {*known} <= {"id", "object", "choices"}
    assert known["choices"][0]["delta"]["content"] == "Hi"
    assert {*known["choices"][0]["delta"]} <= {"content", "tool_calls"}


@pytest.mark.parametrize("value", [{"a": 1}, ["x"]], ids=["object", "list"])
def test_a_known_field_of_another_kind_does_not_pass(value: object) -> None:
    known = json.loads(known_chunk(json.dumps(chunk({"content": value, "role": "assistant"})).encode()))
    assert known["choices"][0]["delta"] == {"role": "assistant"}


@pytest.mark.parametrize("data", [b"", b"5", b"[]", b"{", b'"x"', b"\xff", rb'{"id":"\ud800"}'])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        known_fields(data, CHUNK)


WHOLE = {"role": "assistant", "content": "a", "refusal": None}


@pytest.mark.parametrize(
    "message", [WHOLE, WHOLE | {"content": None, "tool_calls": [CALL]}, WHOLE | {"annotations": []}]
)
@pytest.mark.parametrize("usage", [{}, {"usage": COUNTS}, {"usage": COUNTS | {"prompt_tokens_details": {}}}])
def test_a_whole_answer_of_known_fields_is_the_same_object(message: dict[str, Any], usage: dict[str, Any]) -> None:
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    data = json.dumps({"id": "c", "choices": [choice], **usage}).encode()
    assert known_completion(data) is data
    assert known_fields(data, COMPLETION) is data


def test_whole_replies_and_vectors_have_their_own_lists() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "a", "x": 1}, "delta": {}}], "usage": None, "y": 2}
    for known in (known_completion, partial(known_fields, shape=COMPLETION)):
        assert json.loads(known(json.dumps(whole).encode())) == {
            "choices": [{"index": 0, "message": WHOLE, "finish_reason": "stop", "logprobs": None}],
        }
    text = {"object": "text_completion", "choices": [{"text": "a"}]}
    assert json.loads(known_completion(json.dumps(text).encode()))["choices"] == [TEXT | {"finish_reason": "stop"}]
    vectors = {"object": "list", "data": [{"embedding": [0.5], "index": 0}], "junk": 1}
    assert json.loads(known_fields(json.dumps(vectors).encode(), VECTORS)) == {
        "object": "list",
        "data": [{"embedding": [0.5], "index": 0}],
    }


def test_choices_and_usage_are_taken_out() -> None:
    reply = b'{"id":"c","choices":[{"index":0},{"index":7}],"usage":{}}'
    assert with_choices(reply, [True, False]) == b'{"id":"c","choices":[{"index":0}],"usage":{}}'
    assert without_usage(reply) == b'{"id":"c","choices":[{"index":0},{"index":7}]}'
    assert without_usage(b"{}") == b"{}"


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "function_call"])
def test_a_known_finish_reason_passes_as_it_came(reason: str) -> None:
    given = json.dumps(chunk({}, finish_reason=reason)).encode()
    assert known_chunk(given) is given


@pytest.mark.parametrize("reason", ["eos", "<script>", "\x1b[2Jsk-secret", "", 7, ["stop"], {"a": 1}])
def test_any_other_finish_reason_is_told_as_stop(reason: object) -> None:
    told = json.loads(known_chunk(json.dumps(chunk({}, finish_reason=reason)).encode()))
    assert told["choices"][0]["finish_reason"] == "stop"
    whole = {"id": "c", "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": reason}]}
    assert json.loads(known_completion(json.dumps(whole).encode()))["choices"][0]["finish_reason"] == "stop"
