"""A policy written back: as the JSON object, as the header's line, and as a sentence for people."""

from __future__ import annotations

from typing import Any

from sparewatt.core.money import format_usd
from sparewatt.policy.check import PolicyMismatch
from sparewatt.policy.fields import FIELDS, given_fields
from sparewatt.policy.grammar import number_text
from sparewatt.policy.model import Policy
from sparewatt.policy.relaxation import Relaxation

UNKNOWN = "unknown"
_SORTED = {"price": "cheapest", "latency": "quickest first token", "throughput": "most tokens per second"}
_PHRASES = {
    "region": "in {}",
    "near": "near {}",
    "gpu_class": "GPU class {}",
    "vram_gb": "{} GB of memory",
    "gpu_count": "{} GPUs",
    "compliance": "{}",
    "min_throughput": "at least {} tokens/s",
    "max_ttft_ms": "first token within {} ms",
    "max_price": "at most ${} per 1M tokens",
    "max_hourly": "at most ${} per hour",
}


def to_object(policy: Policy) -> dict[str, Any]:
    """As `carriers.read_object` reads it. Amounts are strings, since they are exact."""
    return {name: kind.to_json(value) for name, value, kind in given_fields(policy)}


def to_line(policy: Policy) -> str:
    """As `carriers.read_line` reads it: for the header, the command line and messages. ASCII."""
    return " ".join(line for name, value, kind in given_fields(policy) for line in kind.conditions(name, value))


def to_sentence(policy: Policy) -> str:
    """Short, for a person: `cheapest, region EU, gpu_class >= a100`."""
    parts = [_SORTED[policy.sort]] if policy.sort in _SORTED else []
    parts += [_part(name, value) for name, value, _ in given_fields(policy) if name != "sort" or value not in _SORTED]
    return ", ".join(parts) or "any node"


def _part(name: str, value: Any) -> str:
    return _PHRASES.get(name, f"{name} {{}}").format(format_value(name, value))


def format_value(name: str, value: Any) -> str:
    """A field's value alone, as its condition has it: `>=a100`, `EU`, `0.3`."""
    conditions = FIELDS[name].conditions(name, value)
    return " ".join(condition.removeprefix(name).removeprefix(".").removeprefix("=") for condition in conditions)


def format_fact(name: str, fact: Any) -> str:
    """What a node has, in the words of the field."""
    match fact:
        case None | (None, _) | (_, None):
            return UNKNOWN
        case (int(), int()):
            return " ".join(
                f"{part}={format_usd(nano)}" for part, nano in zip(("prompt", "completion"), fact, strict=True)
            )
        case frozenset():
            return ",".join(sorted(fact)) or "none"
        case bool():
            return "warm" if fact else "not warm"
        case int() | float():
            return format_usd(int(fact)) if name == "max_hourly" else number_text(fact)
        case _:
            return str(fact)


def explain_mismatch(refused: PolicyMismatch) -> str:
    """`uptime: needs >=0.99, has unknown`."""
    has = format_fact(refused.field, refused.has)
    return f"{refused.field}: needs {format_value(refused.field, refused.needed)}, has {has}"


def explain_relaxation(relaxed: Relaxation, *, is_part: bool = False) -> str:
    """`max_price 0.3→0.34 adds 3 nodes`, `without uptime and tier adds 1 node`. `is_part`: not all were looked at."""
    nodes = "1 node" if relaxed.adds == 1 else f"{relaxed.adds} nodes"
    nodes = f"at least {nodes}" if is_part else nodes
    if relaxed.relaxed is None:
        return f"without {' and '.join(relaxed.fields)} adds {nodes}"
    (field,) = relaxed.fields
    return f"{field} {format_value(field, relaxed.needed)}→{format_value(field, relaxed.relaxed)} adds {nodes}"
