"""The bounds of an account, and how often its nodes may join and report."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.fleet.fleet_limits import (
    JOINS_BURST,
    JOINS_PER_S,
    MODELS_BURST,
    SPECS_BURST,
    FleetBounds,
    FleetRates,
    ModelTally,
)
from tests.unit.inference.nodes import node_id

BOUNDS = FleetBounds(nodes_per_account=3, models_per_account=10, models_per_node=4)
LENDER, OTHER = AccountId("acc_lender"), AccountId("acc_other")


@pytest.mark.parametrize(
    ("models", "is_new", "nodes_known", "others", "reason"),
    [
        (4, True, 2, 6, None),
        (5, True, 0, 0, "models_per_node"),
        (1, True, 3, 2, "nodes_per_account"),
        (1, False, 3, 2, None),
        (4, False, 3, 7, "models_per_account"),
        (0, False, 3, 10, None),
    ],
)
def test_a_node_is_refused_by_the_bound_that_it_exceeds(
    models: int, *, is_new: bool, nodes_known: int, others: int, reason: str | None
) -> None:
    with nullcontext() if reason is None else pytest.raises(JoinRefused) as refused:
        BOUNDS.check(models, is_new=is_new, nodes_known=nodes_known, others_models=others)
    if refused is not None:
        assert (refused.value.reason, refused.value.final) == (reason, False)  # serve fewer, or be allowed more


@pytest.mark.parametrize(
    ("models", "nodes_known", "setting"),
    [(5, 0, "--models-per-node"), (1, 3, "--nodes-per-account"), (4, 2, "--models-per-account")],
)
def test_a_refusal_names_the_operator_s_setting(models: int, nodes_known: int, setting: str) -> None:
    with pytest.raises(JoinRefused, match=setting):
        BOUNDS.check(models, is_new=True, nodes_known=nodes_known, others_models=7)


def test_a_tally_counts_each_connected_node_once_by_its_latest_report() -> None:
    tally = ModelTally()
    tally.put(node_id(1), LENDER, 3)
    tally.put(node_id(1), LENDER, 5)
    tally.put(node_id(2), LENDER, 2)
    tally.put(node_id(3), OTHER, 9)
    assert [tally.others(node_id(n), LENDER) for n in (1, 2, 3)] == [2, 5, 7]
    tally.put(node_id(2), OTHER, 2)  # the account was handed over
    assert (tally.others(node_id(1), LENDER), tally.others(node_id(3), OTHER)) == (0, 2)
    for number in (1, 2, 3, 3):
        tally.remove(node_id(number))
    assert (tally._by_node, tally._by_account) == ({}, {})


def joins(rates: FleetRates, node: NodeId, *, now_s: float, tries: int) -> int:
    """How many of so many tries are let in."""
    refusals: list[JoinRefused] = []
    for _ in range(tries):
        try:
            rates.check_join(node, now_s=now_s)
        except JoinRefused as refused:
            refusals.append(refused)
    assert {(refused.reason, refused.final) for refused in refusals} <= {("join_rate", False)}
    return tries - len(refusals)


def test_a_node_that_joins_again_and_again_is_slowed_down_and_others_are_not() -> None:
    rates = FleetRates()
    assert joins(rates, node_id(1), now_s=0.0, tries=100) == JOINS_BURST
    assert joins(rates, node_id(2), now_s=0.0, tries=1) == 1
    assert joins(rates, node_id(1), now_s=60.0, tries=100) == round(60 * JOINS_PER_S)


def test_all_nodes_of_an_account_may_come_back_at_once_and_report_right_after() -> None:
    rates = FleetRates(models_per_account=1_000)
    for _ in range(100):  # nodes of ten models each
        rates.check_account(LENDER, models=10, now_s=0.0)
    assert all(rates.wait_for_specs(node_id(n), LENDER, models=10, now_s=0.0) == 0.0 for n in range(100))


def test_an_account_whose_nodes_bring_ever_new_models_is_slowed_down_alone() -> None:
    rates = FleetRates(models_per_account=100)
    for _ in range(MODELS_BURST):
        rates.check_account(LENDER, models=100, now_s=0.0)
    with pytest.raises(JoinRefused, match="Try again in"):
        rates.check_account(LENDER, models=1, now_s=0.0)
    rates.check_account(OTHER, models=100, now_s=0.0)
    rates.check_account(LENDER, models=100, now_s=10.0)


def test_specs_beyond_the_rate_are_told_how_long_to_wait() -> None:
    rates = FleetRates()
    waits = [rates.wait_for_specs(node_id(1), LENDER, models=1, now_s=0.0) for _ in range(SPECS_BURST + 1)]
    assert waits == [0.0] * SPECS_BURST + [1.0]
    assert rates.wait_for_specs(node_id(1), LENDER, models=1, now_s=1.0) == 0.0
