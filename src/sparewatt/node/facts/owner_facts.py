"""What the owner states about the model server by `--server-fact NAME=NUMBER`. It counts before all other sources."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparewatt.core.errors import StartupError

AUTO_FACTS = "auto"
"""Instead of facts: forget the saved ones."""
_RANGES = {
    "slots": (1, 4096),
    "kv_tokens": (1, 1 << 40),
    "context": (1, 1 << 26),
    "weights_bytes": (1, 1 << 50),
    "kv_bytes_per_token": (1, 1 << 30),
    "prefix_cache_tokens": (0, 1 << 40),
}
"""Those of the node's report."""


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """None: the owner does not say. What is about a model holds for every model of the server."""

    slots: int | None = None
    kv_tokens: int | None = None
    context: int | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    prefix_cache_tokens: int | None = None


FACT_NAMES = tuple(field.name.replace("_", "-") for field in fields(OwnerFacts))


def parse_owner_facts(text: str | None) -> OwnerFacts:
    """From `slots=64 kv-tokens=35000`; a repeated name counts once, the last. Raises StartupError."""
    if text is None or text.strip() == AUTO_FACTS:
        return OwnerFacts()
    return OwnerFacts(**dict(_parse_fact(fact) for fact in text.replace(",", " ").split()))


def _parse_fact(fact: str) -> tuple[str, int]:
    name, _, number = fact.partition("=")
    field = name.strip().replace("-", "_")
    if field not in _RANGES:
        raise StartupError(
            f"{fact!r} is no fact of a model server. Write NAME=NUMBER with one of {', '.join(FACT_NAMES)}, "
            f"as in --server-fact slots=64; --server-fact {AUTO_FACTS} forgets the saved ones."
        )
    low, high = _RANGES[field]
    digits = number.replace("_", "")
    value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1
    if not low <= value <= high:
        raise StartupError(f"{name} must be a whole number from {low:,} to {high:,}, not {number!r}.")
    return field, value
