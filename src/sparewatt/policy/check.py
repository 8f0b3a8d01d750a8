"""One node, one of its models, one policy: may it serve, and if not, what is missing. Pure.

An unknown figure never satisfies a bound. The first field that a node fails is named, in the vocabulary's order.
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
    """What is known of one node and one of its models. None is unknown."""

    node_id: str
    names: frozenset[str]
    """Its id, its name and its owner's account, in lower case: what `only` and `ignore` look for."""
    place: str | None = None
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
    """Measured, for one answer alone."""
    ttft_ms: float | None = None
    warm: bool = False
    capabilities: frozenset[str] | None = None
    """What the model can do there, by the node's own word; None if it says nothing."""

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
"""The fields that filter, in the order of the funnel: what seldom changes comes first."""

LIVE_FIELDS = frozenset({"max_ttft_ms", "warm"})
"""Those whose facts change with a node's load; the rest changes only with its report."""


class FactRule(Protocol):
    """What judges one fact: a field's kind, or a rule from outside the vocabulary."""

    def admits(self, value: Any, fact: Any, /) -> bool: ...


FieldCheck = tuple[str, Any, FactRule, Fact]
"""The filter's name, what it asks for, who judges, and by which fact."""


@dataclass(frozen=True, slots=True)
class PolicyMismatch:
    """The first field that rules a node out: what the policy needs and what the node has (None: unknown)."""

    field: str
    needed: Any
    has: Any


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy as the few checks it consists of."""

    checks: tuple[FieldCheck, ...]

    def first_mismatch(self, facts: NodeFacts) -> PolicyMismatch | None:
        for name, value, kind, fact in self.checks:
            if not kind.admits(value, fact(facts)):
                return PolicyMismatch(name, value, fact(facts))
        return None

    def mismatched_fields(self, facts: NodeFacts) -> tuple[str, ...]:
        """All the fields that rule a node out."""
        return tuple(name for name, value, kind, fact in self.checks if not kind.admits(value, fact(facts)))

    def admits(self, facts: NodeFacts) -> bool:
        return all(kind.admits(value, fact(facts)) for _, value, kind, fact in self.checks)


@lru_cache(maxsize=POLICIES_COMPILED_MAX)
def compile_policy(policy: Policy, *, without: frozenset[str] = frozenset()) -> CompiledPolicy:
    """The checks of a policy, kept ready by its value. `without` leaves fields out, e.g. those of LIVE_FIELDS."""
    wanted = ((name, getattr(policy, name), fact) for name, fact in FACT_OF.items() if name not in without)
    return CompiledPolicy(tuple((name, value, FIELDS[name], fact) for name, value, fact in wanted if value is not None))


def first_mismatch(policy: Policy, facts: NodeFacts) -> PolicyMismatch | None:
    """None if the node may serve, else the first reason why not."""
    return compile_policy(policy).first_mismatch(facts)
