from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField, InvalidJson, UnsupportedParameter
from sparewatt.protocol.anthropic.request import (
    REFUSED_FIELDS,
    STOP_SEQUENCES_MAX,
    parse_messages,
    require_max_tokens,
)
from tests.unit.protocol.anthropic.anthropic_requests import parsed


def test_known_fields_are_read() -> None:
    request = parsed(system="Be brief.", stream=True, top_k=4, stop_sequences=["x"]).request
    assert (request.system, request.stream, request.top_k, request.stop_sequences) == ("Be brief.", True, 4, ["x"])


def test_fields_without_effect_are_named() -> None:
    ignored = parsed(metadata={"user_id": "u"}, context_management={"edits": []}, new_toy=1).ignored
    assert ignored == ("metadata", "context_management", "new_toy")


def test_fields_that_ask_for_what_happens_anyway_are_not_named() -> None:
    fields = {"service_tier": "auto", "speed": "standard", "cache_control": {"type": "ephemeral"}, "container": None}
    assert parsed(**fields, metadata={}, mcp_servers=[]).ignored == ()


def test_another_tier_or_speed_is_named() -> None:
    assert parsed(service_tier="priority", speed="fast").ignored == ("service_tier", "speed")


def test_a_budget_for_thinking_is_named_and_thinking_itself_is_not() -> None:
    assert parsed(thinking={"type": "enabled", "budget_tokens": 2000}).ignored == ("thinking.budget_tokens",)
    assert parsed(thinking={"type": "adaptive"}).ignored == ()


@pytest.mark.parametrize("name", REFUSED_FIELDS)
def test_a_field_that_changes_the_question_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        parsed(**{name: ["something"]})
    assert refused.value.param == name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"stop_sequences": ["x"] * (STOP_SEQUENCES_MAX + 1)}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"model": ""}, "model"),
    ],
)
def test_a_wrong_value_names_its_field(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parsed(**fields)
    assert refused.value.param == param


def test_the_limit_is_required_to_answer_and_not_to_count() -> None:
    without = parse_messages(b'{"model": "llama", "messages": [{"role": "user", "content": "Hi"}]}').request
    with pytest.raises(InvalidField) as refused:
        require_max_tokens(without)
    assert refused.value.param == "max_tokens"
    assert require_max_tokens(parsed().request) == 9


def test_bytes_that_are_no_json_are_refused() -> None:
    with pytest.raises(InvalidJson):
        parse_messages(b'{"model": ')


@pytest.mark.parametrize(
    ("thinking", "is_shown"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
    ],
)
def test_thinking_is_shown_only_on_request(thinking: dict[str, object] | None, is_shown: bool) -> None:  # noqa: FBT001 (a case)
    assert parsed(thinking=thinking).request.shows_thinking is is_shown
