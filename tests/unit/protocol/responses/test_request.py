from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField, InvalidJson, UnsupportedParameter
from sparewatt.protocol.responses.request import parse_request
from tests.unit.protocol.responses.builders import parsed_request


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"input": 5}, "input"),
        ({"input": ["text"]}, "input[0]"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata.k"),
        ({"metadata": {"k": 1}}, "metadata[...]"),
        ({"background": True, "store": False}, "background"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parsed_request(**fields)
    assert caught.value.param == param


def test_metadata_may_have_sixteen_pairs() -> None:
    assert len(parsed_request(metadata={str(i): "x" * 512 for i in range(16)}).request.metadata or {}) == 16


@pytest.mark.parametrize(("field", "value"), [("prompt", {"id": "pmpt_1"})])
def test_fields_that_cannot_be_ignored_are_refused(field: str, value: object) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parsed_request(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b'{"model":"m","input":' + b"[" * 100_000])
def test_an_unreadable_request_is_refused(body: bytes) -> None:
    with pytest.raises((InvalidJson, InvalidField)):
        parse_request(body)


def test_fields_without_effect_are_named() -> None:
    one = parsed_request(
        truncation="auto",
        service_tier="flex",
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        text={"verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        moderation={"model": "m"},
        seed=1,
    )
    assert one.ignored == (
        *("include.reasoning.encrypted_content", "truncation", "service_tier", "text.verbosity", "reasoning.summary"),
        "moderation",
    )
    assert list(one.extras) == ["seed"]


def test_fields_at_their_defaults_are_not_named() -> None:
    assert parsed_request(truncation="disabled", service_tier="auto", store=False, tools=[], metadata={}).ignored == ()
