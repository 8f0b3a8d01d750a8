from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField, InvalidJson, UnsupportedParameter
from sparewatt.protocol.responses.request import parse_request
from tests.unit.protocol.responses.asking import asked


def test_nothing_is_stored_unless_it_is_asked_for() -> None:
    assert not asked().request.stores
    assert not asked(store=None).request.stores
    assert asked(store=True).request.stores


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
        ({"background": True}, "background"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        asked(**fields)
    assert caught.value.param == param


def test_metadata_may_have_sixteen_pairs() -> None:
    assert len(asked(metadata={str(i): "x" * 512 for i in range(16)}).request.metadata or {}) == 16


@pytest.mark.parametrize(("field", "value"), [("conversation", "conv_1"), ("prompt", {"id": "pmpt_1"})])
def test_what_would_change_the_question_is_refused(field: str, value: object) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        asked(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b'{"model":"m","input":' + b"[" * 100_000])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises((InvalidJson, InvalidField)):
        parse_request(body)


def test_fields_without_an_effect_are_named() -> None:
    one = asked(
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


def test_what_has_its_usual_value_is_not_named() -> None:
    assert asked(truncation="disabled", service_tier="auto", store=False, tools=[], metadata={}).ignored == ()
