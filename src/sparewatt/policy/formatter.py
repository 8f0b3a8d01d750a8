"""Policies as a JSON object or a line of text, and relaxations as sentences."""

from __future__ import annotations

from typing import Any

from sparewatt.core.plural import pluralize
from sparewatt.policy.fields import FIELDS, given_fields
from sparewatt.policy.model import Policy
from sparewatt.policy.relaxation import Relaxation


def to_object(policy: Policy) -> dict[str, Any]:
    """The inverse of `parser.read_object`. Amounts are strings, because they are exact."""
    return {name: field.to_json(value) for name, value, field in given_fields(policy)}


def to_line(policy: Policy) -> str:
    """The inverse of `parser.read_line`. ASCII, since headers are."""
    return " ".join(line for name, value, field in given_fields(policy) for line in field.conditions(name, value))


def explain_relaxation(relaxed: Relaxation, *, is_part: bool = False) -> str:
    """`max_price 0.3→0.34 adds 3 nodes`, `without uptime and tier adds 1 node`. `is_part`: only some were checked."""
    nodes = f"{'at least ' if is_part else ''}{pluralize(relaxed.adds, 'node')}"
    return f"{describe_change(relaxed)} adds {nodes}"


def describe_change(relaxed: Relaxation) -> str:
    """`max_price 0.3→0.34`, `without uptime and tier`."""
    if relaxed.relaxed is None:
        return f"without {' and '.join(relaxed.fields)}"
    (name,) = relaxed.fields
    return f"{name} {_value_text(name, relaxed.needed)}→{_value_text(name, relaxed.relaxed)}"


def _value_text(name: str, value: Any) -> str:
    """A field's value without its name: `>=a100`, `EU`, `0.3`."""
    conditions = FIELDS[name].conditions(name, value)
    return " ".join(condition.removeprefix(name).removeprefix(".").removeprefix("=") for condition in conditions)
