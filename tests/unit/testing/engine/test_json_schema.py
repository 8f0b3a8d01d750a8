from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine.json_schema import minimal_value
from sparewatt.testing.engine.text import words


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 3}, 3),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 4, "multipleOf": 3}, 6),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": -2}, -3),
        ({"type": "number", "minimum": 0.3, "maximum": 0.3}, 0.3),
        ({"type": ["null", "string"]}, None),
        ({"type": "string", "format": "date"}, "2026-01-02"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"type": "array", "items": False}, []),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, None),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": 1}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}}, True),
        ({"type": "object", "properties": {"left": {"type": "null"}}}, {}),
    ],
)
def test_the_smallest_value_of_a_schema(schema: dict[str, Any], value: Any) -> None:
    assert minimal_value(schema, words=words("p")) == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/none"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "nothing"},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
    ],
)
def test_a_schema_without_a_value_in_bounds_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        minimal_value(schema, words=words("p"))
