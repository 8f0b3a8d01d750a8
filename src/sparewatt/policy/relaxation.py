"""When a policy leaves too few nodes: how many each field dropped, and the smallest changes that would admit some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparewatt.policy.check import FACT_OF, NodeFacts, compile_policy
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.model import Policy

RELAXATIONS_MAX = 5


@dataclass(frozen=True, slots=True)
class FilterCount:
    """A filter of the funnel: how many nodes it dropped, and how many were left after it."""

    field: str
    dropped: int
    left: int


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One field loosened, or fields dropped together if `relaxed` is None, and the nodes that this alone would add."""

    fields: tuple[str, ...]
    needed: Any
    relaxed: Any
    adds: int


def check_node(policy: Policy, models: Sequence[NodeFacts]) -> str | None:
    """The field that rules a node out, None if it may serve with any of its models.

    Of a node with several models, the reason is that of the model that passed the most checks.
    """
    order, compiled = list(FACT_OF), compile_policy(policy)
    mismatches = [compiled.first_mismatch(facts) for facts in models]
    return None if None in mismatches else max((name for name in mismatches if name), key=order.index, default=None)


def funnel(policy: Policy, nodes: Sequence[Sequence[NodeFacts]]) -> list[FilterCount]:
    """How many nodes each filter of the policy dropped, in order. A node is the facts of its models."""
    return count_dropped(policy, Counter(check_node(policy, models) for models in nodes))


def count_dropped(policy: Policy, dropped: Counter[str | None]) -> list[FilterCount]:
    """The same from what `check_node` said of each node."""
    left, steps = dropped.total(), []
    for name in _filters(policy):
        left -= dropped[name]
        steps.append(FilterCount(name, dropped[name], left))
    return steps


def relaxations(policy: Policy, nodes: Sequence[Sequence[NodeFacts]]) -> list[Relaxation]:
    """What changing one field would add, the most nodes first; if none would, the fewest fields to drop together."""
    dropped = [models for models in nodes if check_node(policy, models) is not None]
    found = [relaxed for name in _filters(policy) if (relaxed := _relaxed(policy, name, dropped)) is not None]
    found = found or _dropped_together(policy, dropped)
    return sorted(found, key=lambda relaxed: -relaxed.adds)[:RELAXATIONS_MAX]


def _filters(policy: Policy) -> list[str]:
    return [name for name in FACT_OF if getattr(policy, name) is not None]


def _dropped_together(policy: Policy, dropped: Sequence[Sequence[NodeFacts]]) -> list[Relaxation]:
    compiled = compile_policy(policy)
    failed = [{compiled.mismatched_fields(facts) for facts in models} for models in dropped]
    fewest = min((len(fields) for node in failed for fields in node), default=0)
    counts = Counter(fields for node in failed for fields in node if len(fields) == fewest)
    return [Relaxation(fields, None, None, count) for fields, count in counts.items()]


def _relaxed(policy: Policy, name: str, dropped: Sequence[Sequence[NodeFacts]]) -> Relaxation | None:
    """The nearest value of one field that admits some of the dropped nodes."""
    others = compile_policy(policy, without=frozenset({name}))
    by_this = [[facts for facts in models if others.first_mismatch(facts) is None] for models in dropped]
    by_this = [models for models in by_this if models]
    if not by_this:
        return None
    value, fact = getattr(policy, name), FACT_OF[name]
    nearest = FIELDS[name].nearest(value, [fact(facts) for models in by_this for facts in models])
    if nearest is None:
        return Relaxation((name,), value, None, len(by_this))
    looser = replace(policy, **{name: nearest})
    return Relaxation((name,), value, nearest, sum(check_node(looser, models) is None for models in by_this))
