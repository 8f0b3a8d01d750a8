"""The form of answers: JSON of a schema, and tool calls."""

from __future__ import annotations

import pytest

from sparewatt.trust.checks.model import CheckResult
from sparewatt.trust.checks.schema_check import check_calls, check_json

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a"]}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
PASSED, FAILED, UNDECIDED = CheckResult.PASSED, CheckResult.FAILED, CheckResult.UNDECIDED


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"city": "Oslo", "days": 3, "tags": ["a"]}', PASSED),
        ('{"city": "Oslo", "days": 3.0}', PASSED),
        ('{"days": 3}', FAILED),
        ('{"city": 5}', FAILED),
        ('{"city": "Oslo", "days": true}', FAILED),
        ('{"city": "Oslo", "more": 1}', FAILED),
        ('{"city": "Oslo", "tags": ["b"]}', FAILED),
        ("lorem ipsum", FAILED),
        ("[" * 100_000, FAILED),
    ],
)
def test_an_answer_must_have_the_form_that_was_asked_for(text: str, result: CheckResult) -> None:
    assert check_json(text, SCHEMA) is result


@pytest.mark.parametrize("schema", [{"oneOf": []}, {"properties": {"a": {"pattern": "x"}}}, {"$ref": "#"}, 5])
def test_a_schema_that_says_more_than_is_understood_fails_nobody(schema: object) -> None:
    assert check_json("{}", schema) is UNDECIDED


def test_calls_must_name_a_tool_that_was_offered_and_have_json_arguments() -> None:
    assert check_calls([("weather", '{"city": "Oslo"}'), ("weather", "")], {"weather"}) is PASSED
    assert check_calls([("other", "{}")], {"weather"}) is FAILED
    assert check_calls([("weather", "{")], {"weather"}) is FAILED
    assert check_calls([("weather", "[1]")], {"weather"}) is FAILED
