"""Checks one node, with one of its models, against a policy. Pure.

An unknown fact never satisfies a bound. The first field that rules a node out is its reason, in the order of `FACT_OF`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

from sparewatt.core.limits import POLICIES_COMPILED_MAX
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.model import DataPolicy, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What is known of one node and one of its models. None: unknown."""

    node_id: str
    names: frozenset[str]
    """Its id, its name and its owner's account, in lower case: what `only` and `ignore` compare with."""
    place: str | None = None
    zone: int = 0
    """Of `zones`; 0 is unknown."""
    gpu: str | None = None
    """As `gpus.gpu_name` writes it."""
    gpu_class: str | None = None
    vram_gb: float | None = None
    gpu_count: int | None = None
    uptime: float | None = None
    reputation: float | None = None
    compliance: frozenset[str] = frozenset()
    attested_by: frozenset[str] = frozenset()
    tier: str | None = None
    data_policy: DataPolicy | None = None
    hourly_nano: int | None = None
    model: str | None = None
    quantization: str | None = None
    prompt_nano: int | None = None
    completion_nano: int | None = None
    throughput_tps: float | None = None
    """Measured, of one answer at a time."""
    ttft_ms: float | None = None
    warm: bool = False
    capabilities: frozenset[str] | None = None
    """What the model can do there, as the node reports it; None if it reports nothing."""

    @property
    def prices(self) -> tuple[int | None, int | None]:
        return self.prompt_nano, self.completion_nano


Fact = Callable[[NodeFacts], Any]

FACT_OF: dict[str, Fact] = {
    "only": attrgetter("names"),
    "ignore": attrgetter("names"),
    "region": attrgetter("place"),
    "gpu": attrgetter("gpu"),
    "gpu_class": attrgetter("gpu_class"),
    "vram_gb": attrgetter("vram_gb"),
    "gpu_count": attrgetter("gpu_count"),
    "uptime": attrgetter("uptime"),
    "reputation": attrgetter("reputation"),
    "compliance": attrgetter("compliance"),
    "attested_by": attrgetter("attested_by"),
    "tier": attrgetter("tier"),
    "data_policy": attrgetter("data_policy"),
    "max_hourly": attrgetter("hourly_nano"),
    "quantizations": attrgetter("quantization"),
    "max_price": attrgetter("prices"),
    "min_throughput": attrgetter("throughput_tps"),
    "max_ttft_ms": attrgetter("ttft_ms"),
    "warm": attrgetter("warm"),
}
"""The fields that filter, in the order of the funnel: those whose facts seldom change come first."""


class FactRule(Protocol):
    """Decides by one fact: a type of policy field, or a rule from outside the vocabulary."""

    def admits(self, value: Any, fact: Any, /) -> bool: ...


FieldCheck = tuple[str, Any, FactRule, Fact]
"""The filter's name, the value that it requires, its rule, and the fact that the rule decides by."""


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy as a list of checks."""

    checks: tuple[FieldCheck, ...]

    def first_mismatch(self, facts: NodeFacts) -> str | None:
        """The first field that rules the node out, None if it may serve."""
        for name, value, rule, fact in self.checks:
            if not rule.admits(value, fact(facts)):
                return name
        return None

    def mismatched_fields(self, facts: NodeFacts) -> tuple[str, ...]:
        """All fields that rule the node out."""
        return tuple(name for name, value, rule, fact in self.checks if not rule.admits(value, fact(facts)))


@lru_cache(maxsize=POLICIES_COMPILED_MAX)
def compile_policy(policy: Policy, *, without: frozenset[str] = frozenset()) -> CompiledPolicy:
    """The checks of a policy, cached by its value. `without`: fields to leave out."""
    values = ((name, getattr(policy, name), fact) for name, fact in FACT_OF.items() if name not in without)
    return CompiledPolicy(tuple((name, value, FIELDS[name], fact) for name, value, fact in values if value is not None))
