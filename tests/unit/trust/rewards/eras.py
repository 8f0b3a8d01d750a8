"""Eras for the tests of rewards: nodes as hypothesis draws them, and one good node to begin with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sparewatt.policy.gpus import GPU_CLASS_WEIGHT
from sparewatt.protocol.api.rewards import EraInputs, NodeEraInputs, ValidatorEraInputs
from sparewatt.trust.rewards.rule import DAY_S, DEFAULT_RULE

FEE_PERCENT = 5


def payee(number: int) -> str:
    return f"0x{number:040x}"


def a_node(number: int = 1, **changes: Any) -> NodeEraInputs:
    """Verified in full, up all day, without a failure."""
    payers = changes.pop("payers_micro", [300_000] * 4)
    given: dict[str, Any] = {
        "node": f"node{number}",
        "payee": payee(number),
        "gpu_class": "rtx24",
        "gpu_units": 1,
        "tier": "community",
        "up_s": DAY_S,
        "known_s": DAY_S,
        "days": 30,
        "done": 100,
        "failed": 0,
        "checks_passed": 10,
        "checks_failed": 0,
        "payers_micro": payers,
        "payers_done": [25] * len(payers),
        "fees_micro": sum(payers) * FEE_PERCENT // 100,
    }
    return NodeEraInputs(**(given | changes))


def an_era(*nodes: NodeEraInputs, validators: list[ValidatorEraInputs] | None = None, **changes: Any) -> EraInputs:
    given: dict[str, Any] = {
        "era": 1,
        "since": 0,
        "until": DAY_S,
        "rule": DEFAULT_RULE,
        "held_nano": 0,
        "inference_fees_nano": sum(node.fees_micro for node in nodes) * 1_000,
        "lease_fees_nano": 0,
        "nodes": list(nodes),
        "validators": validators or [],
    }
    return EraInputs(**(given | changes))


def drawn_nodes(number: int) -> st.SearchStrategy[NodeEraInputs]:
    return st.builds(
        a_node,
        st.just(number),
        gpu_class=st.sampled_from([*GPU_CLASS_WEIGHT, "unheard-of"]),
        gpu_units=st.integers(0, 8),
        tier=st.sampled_from(list(DEFAULT_RULE.tiers)),
        up_s=st.integers(0, DAY_S),
        known_s=st.integers(0, DAY_S),
        days=st.integers(0, 40),
        done=st.integers(0, 5_000),
        failed=st.integers(0, 200),
        checks_passed=st.integers(0, 200),
        checks_failed=st.integers(0, 3),
        payers_micro=st.lists(st.integers(0, 5_000_000), max_size=8),
    )


fleets = st.integers(1, 6).flatmap(lambda count: st.tuples(*(drawn_nodes(number) for number in range(1, count + 1))))
validators = st.lists(
    st.builds(
        ValidatorEraInputs,
        operator=st.integers(100, 120).map(payee),
        stake_micro=st.integers(0, 10**12),
        votes=st.integers(0, 30),
        due=st.integers(0, 30),
        jailed=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda each: each.operator,
)
eras = st.builds(
    lambda nodes, voting, held, lease_fees: an_era(
        *nodes, validators=voting, held_nano=held, lease_fees_nano=lease_fees
    ),
    fleets,
    validators,
    st.integers(0, 10**13),
    st.integers(0, 10**12),
)
