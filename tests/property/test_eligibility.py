"""A match under a policy is the full ranking without those that the policy rules out, and its funnel adds up."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.capabilities import NOTHING_REQUIRED, RequiredCapabilities
from sparewatt.inference.dispatch.node_selection import match_through
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.matcher import match as module
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED, RANKINGS, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, Decision
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import FRESH_S
from sparewatt.policy.model import ANY, MaxPrice
from sparewatt.policy.parser import read_line
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.fleets import OWNERS, a_fleet, add_node, allowed_by, assert_adds_up, refusals
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, node_id, situation, some_specs

conditions = st.sampled_from(
    [
        "region=EU",
        "region!=US",
        "gpu_class>=h100",
        "max_price<=0.09",
        "max_price.prompt<=0.03",
        "max_ttft_ms<=200",
        "warm=require",
        "uptime>=0.9",
        "quantizations=fp16",
        "only=acc_ann,node-4,node-5",
        "ignore=acc_bob",
        "min_throughput>=10",
    ]
)
lines = st.lists(conditions, min_size=1, max_size=3, unique=True).map(" ".join)
fleets = st.lists(st.integers(0, 60), unique=True, max_size=25)
tiers = st.sampled_from(list(RANKINGS.values()))
owners = st.sampled_from([AccountId(owner) for owner in OWNERS if owner])


def through(table: NodeTable, line: str, payer: AccountId | None = None, policy: Ranking = BALANCED) -> Decision:
    eligibility = Eligibility(table, clock=ManualClock(now_s=NOW_S))
    gate = eligibility.gate(read_line(line), MODEL, payer=payer)
    return match_through(gate, a_job(), table, situation(), ranking=policy, seed=5)


def everybody(table: NodeTable, policy: Ranking) -> list[NodeId]:
    """The whole ranking, not only the best few."""
    found: list[NodeId] = []
    while best := match(a_job(), table, situation(tried=found), ranking=policy, seed=5).best:
        found.append(best.node_id)
    return found


@given(numbers=fleets, line=lines, policy=tiers)
def test_a_match_under_a_policy_is_the_whole_ranking_filtered(numbers: list[int], line: str, policy: Ranking) -> None:
    table = a_fleet(numbers, others=2)
    refused = refusals(table, read_line(line))
    wanted = [name for name in everybody(table, policy) if refused[name] is None]
    decision = through(table, line, policy=policy)
    assert [candidate.node_id for candidate in decision.ranked] == wanted[:CANDIDATES_KEPT]
    by_hand = match(a_job(), table, situation(allowed=allowed_by(table, read_line(line))), ranking=policy, seed=5)
    assert by_hand == decision
    assert sum(decision.rejected_by_policy.values()) == sum(reason is not None for reason in refused.values())


@given(numbers=fleets, line=lines, payer=st.none() | owners, order=st.sampled_from(["", " order=node-3,acc_ann"]))
def test_the_funnel_adds_up_and_never_falls_below_nothing(
    numbers: list[int], line: str, payer: AccountId | None, order: str
) -> None:
    table = a_fleet(numbers, others=2)
    decision = through(table, line + order, payer)
    assert_adds_up(decision, kept=CANDIDATES_KEPT)
    steps = msgspec.to_builtins(describe(decision, {row.id: row for row in table}).funnel)
    assert all(step["left"] >= 0 for step in steps)
    mine = table.nodes_of(payer) if payer else ()
    assert not {candidate.node_id for candidate in decision.ranked} & set(mine)


@given(numbers=fleets, line=lines, payer=st.none() | owners, chance=st.randoms(use_true_random=False))
def test_neither_the_order_of_the_table_nor_what_was_before_changes_anything(
    numbers: list[int], line: str, payer: AccountId | None, chance: random.Random
) -> None:
    shuffled = chance.sample(numbers, len(numbers))
    assert through(a_fleet(numbers), line, payer) == through(a_fleet(shuffled), line, payer)
    moved = a_fleet([*shuffled, 1000])
    moved.set_specs(node_id(1000), some_specs(a_model(id="another")))  # the last place moves into the hole
    again = through(moved, line, payer)
    assert again.ranked == through(a_fleet(numbers), line, payer).ranked


@given(
    line=lines,
    steps=st.lists(
        st.tuples(st.sampled_from(["come", "change", "leave", "wait", "far"]), st.integers(0, 12), st.integers(0, 60)),
        max_size=25,
    ),
)
def test_whoever_is_admitted_keeps_the_policy_at_that_very_moment(line: str, steps: list[tuple[str, int, int]]) -> None:
    table, clock = a_fleet(range(4)), ManualClock(now_s=NOW_S)
    eligibility = Eligibility(table, clock=clock)
    policy = read_line(line)
    gate = eligibility.gate(policy, MODEL)
    assert gate is not None
    for what, number, other in steps:
        row = table.get(node_id(number))
        if what == "come":
            add_node(table, number)
        elif what == "wait":
            clock.advance(FRESH_S)
        elif row is not None and what == "far":
            table.set_rtt(row.id, other / 50, now_s=NOW_S)
        elif row is not None and what == "change":
            table.set_specs(row.id, _specs_like(other))
        elif row is not None:
            table.set_specs(row.id, some_specs(a_model(id="another")))
        refused = refusals(table, policy)
        decision = match_through(gate, a_job(), table, situation(), ranking=BALANCED, seed=5)
        assert_adds_up(decision, kept=CANDIDATES_KEPT)
        for row in table:
            assert gate.admits(row.id) == (row.id in refused and refused[row.id] is None)
        for candidate in match_through(gate, a_job(), table, situation(), ranking=BALANCED, seed=5).ranked:
            assert refused[candidate.node_id] is None


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["come", "change", "leave", "go", "wait"]), st.integers(0, 6), st.integers(0, 60)),
        max_size=25,
    ),
    ceiling=st.integers(1, 8),
    needs=st.sampled_from([NOTHING_REQUIRED, RequiredCapabilities(frozenset({"tools"}))]),
)
def test_who_is_known_to_be_admitted_would_be_so_if_judged(
    steps: list[tuple[str, int, int]], ceiling: int, needs: RequiredCapabilities
) -> None:
    table, clock = NodeTable(), ManualClock(now_s=NOW_S)
    default_cap = MaxPrice(10_000_000 * ceiling, 30_000_000 * ceiling)
    gate = Eligibility(table, clock=clock).gate(ANY, MODEL, default_cap=default_cap, needs=needs)
    assert gate is not None
    for what, number, other in steps:
        row = table.get(node_id(number))
        if what == "come":
            add_node(table, number)
        elif what == "wait":
            clock.advance(FRESH_S)
        elif row is not None and what == "go":
            table.disconnect(row.id, unix_s=0.0)
        elif row is not None and what == "change":
            table.set_specs(row.id, _specs_like(other))
        elif row is not None:
            table.set_specs(row.id, some_specs(a_model(id="another")))
        gate.stages()
        for row in table:
            judging = Eligibility(table, clock=clock).gate(ANY, MODEL, default_cap=default_cap, needs=needs)
            assert judging is not None
            assert gate.admits(row.id) == judging.admits(row.id)


def _specs_like(number: int) -> NodeSpecs:
    row = a_fleet([number]).get(node_id(number))
    assert row is not None
    return row.specs


# models with so many nodes that a shortlist is looked at


@pytest.fixture
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_MAX", 200)


@pytest.mark.usefixtures("_few_are_many")
@pytest.mark.parametrize("payer", [None, AccountId("acc_ann")])
@pytest.mark.parametrize(
    "line", ["gpu_count>=1", "ignore=node-3", "region=EU", "only=node-7", "max_price<=0.18", "sort=price"]
)
def test_with_a_shortlist_the_funnel_adds_up_too(line: str, payer: AccountId | None) -> None:
    table = a_fleet(range(400), others=3)
    decision = through(table, line, payer)
    assert_adds_up(decision, kept=CANDIDATES_KEPT)
    refused = refusals(table, read_line(line))
    mine = set(table.nodes_of(payer)) if payer else set()
    assert decision.ranked
    assert all(refused[candidate.node_id] is None for candidate in decision.ranked)
    assert not mine & {candidate.node_id for candidate in decision.ranked}


def test_a_strict_policy_has_all_that_it_leaves_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_fleet(range(400))
    wanted = through(table, "region=EU").ranked
    monkeypatch.setattr(module, "SCAN_MAX", 200)
    assert through(table, "region=EU").ranked == wanted


@pytest.mark.usefixtures("_few_are_many")
def test_a_shortlist_of_which_a_policy_leaves_nobody_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_fleet(range(400))
    row = table.get(node_id(3))
    assert row is not None
    only_it = np.array([row.positions[MODEL].index])
    monkeypatch.setattr(module, "shortlisted", lambda *_, **__: only_it)
    decision = through(table, "ignore=node-3")
    assert len(decision.ranked) == CANDIDATES_KEPT
    assert_adds_up(decision, kept=CANDIDATES_KEPT)
