"""The order in which `GET /v1/nodes` lists the nodes that a policy allows. The matcher ranks jobs by other rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparewatt.policy.check import NodeFacts, compile_policy
from sparewatt.policy.model import Policy
from sparewatt.policy.zones import distances_from


def sort_key(policy: Policy, models: Sequence[NodeFacts]) -> tuple[float, ...]:
    """Lowest first: by `order`, then by the distance to `near`, by `warm`, and by `sort`. Unknown facts come last."""
    compiled = compile_policy(policy)
    keys = (_key(policy, facts) for facts in models if compiled.first_mismatch(facts) is None)
    return min(keys, default=(math.inf,))


def _key(policy: Policy, facts: NodeFacts) -> tuple[float, ...]:
    order = policy.order or ()
    position = next((at for at, name in enumerate(order) if name in facts.names), len(order))
    away_ms = distances_from(policy.near)[facts.zone] if policy.near is not None else 0
    is_warm = policy.warm == "prefer" and facts.warm
    return (position, away_ms, -is_warm, _sorted_by(policy, facts))


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
