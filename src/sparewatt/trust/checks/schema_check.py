"""Whether an answer has the form that was asked for: tool calls and JSON schemas. Pure.

It costs nothing, and fails no honest node that constrains its model: an answer that was cut off by its limit is not
judged, nor a schema that says more than is understood here (types, properties, required, items, enum, const).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sparewatt.trust.checks.model import CheckResult

DEPTH_MAX = 16
_KNOWN = {
    "type", "properties", "required", "items", "enum", "const", "additionalProperties",
    "title", "description", "default", "examples", "$schema", "strict", "name",
}  # fmt: skip
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def check_json(text: str, schema: object) -> CheckResult:
    """An answer that should be JSON of this schema."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return CheckResult.FAILED
    if not _is_understood(schema, depth=0):
        return CheckResult.UNDECIDED
    return CheckResult.PASSED if _holds(value, schema, depth=0) else CheckResult.FAILED


def check_calls(calls: Sequence[tuple[str, str]], tools: Collection[str]) -> CheckResult:
    """Calls as (name, arguments); `tools`: the names that were offered."""
    for name, arguments in calls:
        try:
            is_object = isinstance(json.loads(arguments or "{}"), dict)
        except (ValueError, RecursionError):
            return CheckResult.FAILED
        if not is_object or name not in tools:
            return CheckResult.FAILED
    return CheckResult.PASSED


def _is_understood(schema: object, *, depth: int) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or depth > DEPTH_MAX or not _KNOWN.issuperset(schema):
        return False
    parts = [*schema.get("properties", {}).values()] if isinstance(schema.get("properties", {}), dict) else [None]
    parts += [schema[name] for name in ("items", "additionalProperties") if name in schema]
    return all(_is_understood(part, depth=depth + 1) for part in parts)


def _holds(value: Any, schema: Any, *, depth: int) -> bool:
    if isinstance(schema, bool):
        return schema
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        return False
    if not _has_type(value, schema.get("type")):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(_holds(each, schema["items"], depth=depth + 1) for each in value)
    return _has_properties(value, schema, depth=depth) if isinstance(value, dict) else True


def _has_type(value: Any, wanted: Any) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list) or not names:
        return True
    return any(_is_of_type(value, name) for name in names)


def _is_of_type(value: Any, name: object) -> bool:
    if name in {"integer", "number"} and isinstance(value, bool):
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name]) if isinstance(name, str) and name in _TYPES else True


def _has_properties(value: dict[str, Any], schema: dict[str, Any], *, depth: int) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required", ())):
        return False
    return all(_holds(each, properties.get(name, others), depth=depth + 1) for name, each in value.items())
