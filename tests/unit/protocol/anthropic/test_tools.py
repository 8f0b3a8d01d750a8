from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField, SparewattError, UnsupportedParameter
from sparewatt.protocol.anthropic.tools import offered_tools
from tests.unit.protocol.anthropic.anthropic_requests import SCHEMA, TOOL, Json


def test_a_tool_becomes_a_function() -> None:
    fields, ignored = offered_tools([TOOL | {"cache_control": {"type": "ephemeral"}}], None)
    function = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
    assert fields == {"tools": [{"type": "function", "function": function}]}
    assert ignored == ()


def test_a_strict_tool_stays_strict() -> None:
    fields, _ = offered_tools([TOOL | {"type": "custom", "strict": True}], None)
    assert fields["tools"][0]["function"]["strict"] is True


def test_tools_that_anthropic_runs_are_left_out_and_named() -> None:
    search: Json = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    fields, ignored = offered_tools([search, TOOL], None)
    assert [tool["function"]["name"] for tool in fields["tools"]] == ["look"]
    assert ignored == ("tools.web_search_20250305",)


@pytest.mark.parametrize(
    ("choice", "becomes"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
    ],
)
def test_a_choice_becomes_that_of_a_chat(choice: Json, becomes: str | Json) -> None:
    fields, _ = offered_tools([TOOL], choice)
    assert fields["tool_choice"] == becomes
    assert "parallel_tool_calls" not in fields


def test_one_call_at_a_time_can_be_asked_for() -> None:
    fields, _ = offered_tools([TOOL], {"type": "auto", "disable_parallel_tool_use": True})
    assert fields["parallel_tool_calls"] is False


def test_a_choice_without_tools_has_no_effect() -> None:
    assert offered_tools([], {"type": "auto", "disable_parallel_tool_use": True}).fields == {}


@pytest.mark.parametrize(
    ("tools", "choice", "error", "param"),
    [
        ([{"input_schema": {}}], None, InvalidField, "tools.0.name"),
        ([{"name": "x" * 129, "input_schema": {}}], None, InvalidField, "tools.0.name"),
        ([TOOL, {"name": "x"}], None, InvalidField, "tools.1.input_schema"),
        ([TOOL], {"type": "tool", "name": "other"}, InvalidField, "tool_choice"),
        ([TOOL], {"type": "tool"}, InvalidField, "tool_choice"),
        ([TOOL], {"type": "sometimes"}, UnsupportedParameter, "tool_choice.type"),
    ],
)
def test_a_wrong_tool_or_choice_names_its_field(
    tools: list[Json], choice: Json | None, error: type[SparewattError], param: str
) -> None:
    with pytest.raises(error) as refused:
        offered_tools(tools, choice)
    assert refused.value.param == param
