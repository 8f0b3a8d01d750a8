"""The smallest JSON value that a JSON schema allows, with given words as strings.

Supports what tool parameters and structured outputs use: types, enums, references, unions, required properties, bounds
and common formats. `pattern` is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from sparewatt.core.errors import InvalidField

Schema = Mapping[str, Any]

DEPTH_MAX = 64
"""Deep enough for real tool schemas, far from the interpreter's recursion limit."""

STRING_CHARS_MAX = 10_000
ITEMS_MAX = 1000
"""The largest minimum that a schema may set; more is a mistake or an attack."""

_FORMATS = {
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "date-time": "2026-01-02T03:04:05Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def minimal_value(schema: Schema, *, words: Iterator[str]) -> Any:
    """A value that `schema` accepts; the same words give the same value."""
    return _Filler(schema, words).value(schema, depth=0)


class _Filler:
    """Fills one schema; references point into `root`."""

    def __init__(self, root: Schema, words: Iterator[str]) -> None:
        self._root = root
        self._words = words

    def value(self, schema: Any, *, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise _bad_schema("is nested too deeply or has no finite value")
        plain = self._plain(schema, depth=depth)
        if "const" in plain:
            return plain["const"]
        if plain.get("enum"):
            return plain["enum"][0]
        return self._typed(plain, depth=depth)

    def _plain(self, schema: Any, *, depth: int) -> Schema:
        """The schema with its references and unions resolved to one branch."""
        if schema is True:
            return {}
        if not isinstance(schema, Mapping):
            raise _bad_schema("allows no value")
        if depth > DEPTH_MAX:
            raise _bad_schema("refers to itself")
        branches = [self._plain(branch, depth=depth + 1) for branch in self._branches(schema)]
        rest = {key: value for key, value in schema.items() if key not in {"$ref", "anyOf", "oneOf", "allOf"}}
        return _merged([rest, *branches]) if branches else rest

    def _branches(self, schema: Schema) -> list[Any]:
        branches = list(schema.get("allOf", ()))
        if "$ref" in schema:
            branches.append(self._resolve(schema["$ref"]))
        unions = [schema[name] for name in ("anyOf", "oneOf") if schema.get(name)]
        return branches + [min(union, key=_can_recurse) for union in unions]

    def _resolve(self, reference: object) -> Any:
        target: Any = self._root
        for name in str(reference).removeprefix("#").strip("/").split("/"):
            key = name.replace("~1", "/").replace("~0", "~")
            if key and not (isinstance(target, Mapping) and key in target):
                raise _bad_schema(f"has no {str(reference)[:100]!r}")
            target = target[key] if key else target
        return target

    def _typed(self, schema: Schema, *, depth: int) -> Any:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth=depth)
            case "array":
                return self._array(schema, depth=depth)
            case "string":
                return self._string(schema)
            case "integer":
                return _number(schema, step=1)
            case "number":
                return _number(schema, step=0.5)
            case "boolean" | "null" as name:
                return True if name == "boolean" else None
            case other:
                raise _bad_schema(f"has an unknown type {str(other)[:40]!r}")

    def _object(self, schema: Schema, *, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        return {name: self.value(properties.get(name, {}), depth=depth + 1) for name in schema.get("required", ())}

    def _array(self, schema: Schema, *, depth: int) -> list[Any]:
        count = schema.get("minItems", 0)
        if count > ITEMS_MAX:
            raise _bad_schema(f"requires more than {ITEMS_MAX} items")
        first = schema.get("prefixItems", [])[:count]
        rest = [schema.get("items", True)] * (count - len(first))
        return [self.value(item, depth=depth + 1) for item in [*first, *rest]]

    def _string(self, schema: Schema) -> str:
        shortest = schema.get("minLength", 0)
        if shortest > STRING_CHARS_MAX:
            raise _bad_schema(f"requires more than {STRING_CHARS_MAX} characters")
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = " ".join(islice(self._words, 2 + shortest // 2))
        return text[: schema.get("maxLength", len(text))]


def _can_recurse(branch: Any) -> bool:
    """Sorts a branch that is a reference after one that is not."""
    return isinstance(branch, Mapping) and "$ref" in branch


def _merged(schemas: list[Schema]) -> Schema:
    merged: dict[str, Any] = {}
    for schema in schemas:
        properties = {**merged.get("properties", {}), **schema.get("properties", {})}
        required = [*merged.get("required", ()), *schema.get("required", ())]
        merged |= schema
        merged |= {"properties": properties} if properties else {}
        merged |= {"required": list(dict.fromkeys(required))} if required else {}
    return merged


def _type_of(schema: Schema) -> object:
    named = schema.get("type")
    if isinstance(named, list) and named:
        return named[0]
    if named is not None:
        return named
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _number(schema: Schema, *, step: float) -> float:
    """The lowest multiple of the step in bounds (0 without bounds), or their middle if no multiple is in bounds."""
    unit: float = schema.get("multipleOf", step)
    low: float | None = schema.get("minimum", schema.get("exclusiveMinimum"))
    high: float | None = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None or high > 0 else unit * (math.floor(high / unit) - 1)
    number = unit * math.ceil(low / unit)
    if number == schema.get("exclusiveMinimum"):
        number += unit
    is_tight = step < 1 and high is not None and number >= high and "multipleOf" not in schema
    return (low + high) / 2 if is_tight and high is not None else number


def _bad_schema(what: str) -> InvalidField:
    return InvalidField(f"The JSON schema {what}.", param="schema")
