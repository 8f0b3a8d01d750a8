"""The checks against OpenAI's specification find what they are for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.openai_spec.replies import CHAT, CHUNK, RESPONSE, TEXT, TEXT_CHUNK, assert_valid, specification
from tests.openai_spec.trim import trimmed

MESSAGE = {"role": "assistant", "content": "a", "refusal": None}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop", "logprobs": None}
REPLY = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
DELTA = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
EVENT = {**REPLY, "object": "chat.completion.chunk", "choices": [DELTA]}
WORDS = {"index": 0, "text": "a", "finish_reason": "stop", "logprobs": None}
COMPLETION = {**REPLY, "object": "text_completion", "choices": [WORDS]}


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != name}


@pytest.mark.parametrize(
    ("kind", "reply"), [(CHAT, REPLY), (CHUNK, EVENT), (TEXT, COMPLETION), (TEXT_CHUNK, COMPLETION)]
)
def test_a_reply_as_openai_gives_it_is_valid(kind: str, reply: dict[str, Any]) -> None:
    assert_valid(kind, reply)


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        (CHAT, without(REPLY, "id")),
        (CHAT, REPLY | {"choices": [CHOICE | {"message": without(MESSAGE, "refusal")}]}),
        (CHAT, REPLY | {"choices": [without(CHOICE, "logprobs")]}),
        (CHAT, REPLY | {"choices": [CHOICE | {"finish_reason": None}]}),
        (CHAT, REPLY | {"system_fingerprint": None}),
        (CHUNK, EVENT | {"choices": [DELTA | {"delta": {"role": None}}]}),
        (CHUNK, EVENT | {"choices": [without(DELTA, "finish_reason")]}),
        (TEXT, COMPLETION | {"choices": [WORDS | {"finish_reason": None}]}),
        (TEXT, COMPLETION | {"choices": [WORDS | {"finish_reason": "tool_calls"}]}),
        (TEXT_CHUNK, COMPLETION | {"usage": None}),
        (RESPONSE, {"id": "r"}),
    ],
)
def test_a_reply_that_the_specification_forbids_is_found(kind: str, reply: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=kind):
        assert_valid(kind, reply)


def test_only_a_chunk_of_a_text_may_have_no_finish_reason_yet() -> None:
    assert_valid(TEXT_CHUNK, COMPLETION | {"choices": [WORDS | {"finish_reason": None}]})


def test_what_is_committed_is_what_the_script_makes_of_it() -> None:
    """Trimming what is trimmed changes nothing, so nobody has written into it by hand."""
    document = specification()
    for route in document["paths"].values():
        for operation in route.values():
            assert set(operation) <= {"operationId", "parameters", "requestBody", "responses"}
    assert json.dumps(trimmed(document), sort_keys=True) == json.dumps(document, sort_keys=True)
