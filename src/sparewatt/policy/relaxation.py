"""When too few nodes are left: how many each field dropped, and the smallest change that would bring some back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparewatt.policy.check import FACT_OF, NodeFacts, PolicyMismatch, compile_policy
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.model import Policy

RELAXATIONS_MAX = 5


@dataclass(frozen=True, slots=True)
class FilterCount:
    """A filter of the funnel: how many nodes it dropped and how many were left after it."""

    field: str
    dropped: int
    left: int


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One field loosened, or one or more dropped where `relaxed` is None, and the nodes that this alone would add."""

    fields: tuple[str, ...]
    needed: Any
    relaxed: Any
    adds: int


def check_node(policy: Policy, models: Sequence[NodeFacts]) -> PolicyMismatch | None:
    """One node by the facts of each of its models: it may serve with any; else the one that got furthest speaks."""
    order = list(FACT_OF)
    refused: PolicyMismatch | None = None
    for facts in models:
        found = compile_policy(policy).first_mismatch(facts)
        if found is None:
            return None
        if refused is None or order.index(found.field) > order.index(refused.field):
            refused = found
    return refused


def funnel(policy: Policy, nodes: Sequence[Sequence[NodeFacts]]) -> list[FilterCount]:
    """How many nodes each of the policy's filters dropped, in order. A node is the facts of its models."""
    verdicts = [check_node(policy, models) for models in nodes]
    dropped = Counter(found.field for found in verdicts if found is not None)
    left, steps = len(nodes), []
    for name in (name for name in FACT_OF if getattr(policy, name) is not None):
        left -= dropped[name]
        steps.append(FilterCount(name, dropped[name], left))
    return steps


def relaxations(policy: Policy, nodes: Sequence[Sequence[NodeFacts]]) -> list[Relaxation]:
    """What one changed field would add, the most nodes first; where none would, the fewest fields to drop together."""
    out = [models for models in nodes if check_node(policy, models) is not None]
    fields = [name for name in FACT_OF if getattr(policy, name) is not None]
    found = [relaxed for name in fields if (relaxed := _relaxed(policy, name, out)) is not None]
    found = found or _dropped_together(policy, out)
    return sorted(found, key=lambda relaxed: -relaxed.adds)[:RELAXATIONS_MAX]


def _dropped_together(policy: Policy, out: Sequence[Sequence[NodeFacts]]) -> list[Relaxation]:
    compiled = compile_policy(policy)
    failed = [{compiled.mismatched_fields(facts) for facts in models} for models in out]
    if not failed:
        return []
    fewest = min(len(fields) for node in failed for fields in node)
    counts = Counter(fields for node in failed for fields in node if len(fields) == fewest)
    return [Relaxation(fields, None, None, count) for fields, count in counts.items()]


def _relaxed(policy: Policy, name: str, out: Sequence[Sequence[NodeFacts]]) -> Relaxation | None:
    """The nearest value of one field with which some of those who are out come in."""
    without = compile_policy(policy, without=frozenset({name}))
    only_this = [[facts for facts in models if without.admits(facts)] for models in out]
    only_this = [models for models in only_this if models]
    if not only_this:
        return None
    value, kind, fact = getattr(policy, name), FIELDS[name], FACT_OF[name]
    nearest = kind.nearest(value, [fact(facts) for models in only_this for facts in models])
    if nearest is None:
        return Relaxation((name,), value, None, len(only_this))
    looser = replace(policy, **{name: nearest})
    return Relaxation((name,), value, nearest, sum(check_node(looser, models) is None for models in only_this))
