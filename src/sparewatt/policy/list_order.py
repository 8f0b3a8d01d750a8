"""The order in which a list shows nodes that a policy allows. Jobs are ranked by the matcher; this is for reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparewatt.policy.check import NodeFacts, compile_policy
from sparewatt.policy.model import Policy
from sparewatt.policy.regions import COVERS


def sort_key(policy: Policy, models: Sequence[NodeFacts]) -> tuple[float, ...]:
    """Lowest first: named in `order`, liked, then by `sort`. Unknown figures come last."""
    admits = compile_policy(policy).admits
    return min((_key(policy, facts) for facts in models if admits(facts)), default=(math.inf,))


def _key(policy: Policy, facts: NodeFacts) -> tuple[float, ...]:
    return (_position(policy, facts), -_wishes_met(policy, facts), _sorted_by(policy, facts))


def _position(policy: Policy, facts: NodeFacts) -> int:
    order = policy.order or ()
    return next((at for at, name in enumerate(order) if name in facts.names), len(order))


def _wishes_met(policy: Policy, facts: NodeFacts) -> int:
    near, tps, ttft_ms = policy.near, policy.preferred_min_throughput, policy.preferred_max_ttft_ms
    return (
        (near is not None and facts.place in COVERS[near])
        + (policy.warm == "prefer" and facts.warm)
        + (tps is not None and (facts.throughput_tps or 0.0) >= tps)
        + (ttft_ms is not None and facts.ttft_ms is not None and facts.ttft_ms <= ttft_ms)
    )


def _sorted_by(policy: Policy, facts: NodeFacts) -> float:
    match policy.sort:
        case "price":
            both = (facts.prompt_nano, facts.completion_nano)
            return math.inf if None in both else float(sum(nano or 0 for nano in both))
        case "latency":
            return math.inf if facts.ttft_ms is None else facts.ttft_ms
        case "throughput":
            return math.inf if facts.throughput_tps is None else -facts.throughput_tps
        case "score" | None:
            return 0.0
