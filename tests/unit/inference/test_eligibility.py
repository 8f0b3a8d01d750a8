"""Who may serve: verdicts that are kept, lists that are put together anew in time, and orders that come first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.inference import eligibility as module
from sparewatt.inference.dispatch.node_selection import match_through, no_match_error
from sparewatt.inference.eligibility import IDLE_S, Eligibility, PolicyGate
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.model import AllowedNodes, Decision
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import FRESH_S, facts_with
from sparewatt.policy.check import NodeFacts
from sparewatt.policy.model import ANY, MaxPrice
from sparewatt.policy.parser import read_line
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.fleets import assert_adds_up
from tests.unit.inference.nodes import (
    MODEL,
    NOW_S,
    SPEED,
    a_job,
    a_model,
    a_table,
    make_timed,
    node_id,
    situation,
    some_specs,
)

ANN = AccountId("acc_ann")
USUAL = MaxPrice(80_000_000, 240_000_000)
"""Four times what the nodes of these tests ask for."""
DEAR = a_model(completion_price_nano=240_000_001)


class Fleet:
    """A table, a clock, and gates for one policy."""

    def __init__(self, *specs: NodeSpecs) -> None:
        self.clock = ManualClock(now_s=NOW_S)
        self.table = NodeTable()
        for number, said in enumerate(specs, start=1):
            self.table.connect(node_id(number), said, now_s=NOW_S)
        self.eligibility = Eligibility(self.table, clock=self.clock)

    def gate(
        self, line: str = "", *, payer: AccountId | None = None, default_cap: MaxPrice | None = None
    ) -> PolicyGate:
        gate = self.eligibility.gate(read_line(line) if line else ANY, MODEL, payer=payer, default_cap=default_cap)
        assert gate is not None
        return gate

    def allowed(self, line: str, *, default_cap: MaxPrice | None = None) -> list[int]:
        (last,) = self.gate(line, default_cap=default_cap).stages()
        return numbers(last)

    def decide(self, gate: PolicyGate | None) -> Decision:
        return match_through(gate, a_job(), self.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)


def numbers(allowed: AllowedNodes | None) -> list[int]:
    assert allowed is not None
    return sorted(int(name, 16) for name in allowed.nodes)


def places(*regions: str) -> Fleet:
    return Fleet(*(some_specs(region=region) for region in regions))


def candidates(decision: Decision) -> list[int]:
    return sorted(int(candidate.node_id, 16) for candidate in decision.ranked)


# when nothing is asked


@pytest.mark.parametrize("line", ["", "sort=price", "weights.price=2", "allow_fallbacks=false"])
def test_a_policy_that_rules_nobody_out_has_no_gate(line: str) -> None:
    fleet = places("de")
    assert fleet.eligibility.gate(read_line(line), MODEL) is None


def test_a_policy_that_only_wants_nodes_near_by_rules_nobody_out() -> None:
    fleet = places("jp", "de")
    gate = fleet.eligibility.gate(read_line("near=DE"), MODEL)
    assert gate is not None
    assert (gate.near, list(gate.stages())) == ("DE", [None])
    for number in (1, 2):
        make_timed(fleet.table, node_id(number))
    decision = match_through(gate, a_job(), fleet.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
    assert [candidate.node_id for candidate in decision.ranked] == [node_id(2), node_id(1)]


def test_a_policy_that_asks_for_warm_nodes_only_if_there_are_some_lets_all_through() -> None:
    fleet = Fleet(some_specs(a_model(state="on_disk")))
    assert fleet.allowed("warm=prefer") == [1]
    assert fleet.allowed("warm=require") == []


def test_a_model_that_nobody_has_leaves_nobody() -> None:
    fleet = places("de")
    gate = fleet.eligibility.gate(read_line("region=EU"), ModelId("nobody-has-it"))
    assert gate is not None
    assert [numbers(stage) for stage in gate.stages()] == [[]]
    assert not gate.admits(node_id(1))


# verdicts


@pytest.mark.parametrize(
    "line",
    ["uptime>=0.5", "reputation>=0", "compliance=gdpr", "attested_by=tuv", "tier>=verified", "data_policy=no_log"],
)
def test_what_is_unknown_satisfies_no_bound(line: str) -> None:
    fleet = places("de")
    assert fleet.allowed(line) == []
    assert not fleet.gate(line).admits(node_id(1))


def test_a_node_whose_place_or_speed_is_unknown_is_ruled_out() -> None:
    fleet = Fleet(some_specs(region="attic"), some_specs(a_model(measured=None), region="de"))
    assert fleet.allowed("region=EU") == [2]
    assert fleet.allowed("min_throughput>=1") == [1]
    assert fleet.allowed("max_ttft_ms<=100000") == [1]


def test_a_verdict_is_kept_until_the_node_reports_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = places("de", "us")
    assert fleet.allowed("region=EU") == [1]
    judged: list[str] = []

    def noted(row: NodeRow, model: ModelReport | None) -> NodeFacts:
        judged.append(row.id)
        return facts_with(row, model)

    monkeypatch.setattr("sparewatt.inference.verdicts.facts_with", noted)
    fleet.clock.advance(FRESH_S)
    assert fleet.allowed("region=EU") == [1]
    assert judged == []
    fleet.table.set_specs(node_id(2), some_specs(region="fr"))
    fleet.clock.advance(FRESH_S)
    assert fleet.allowed("region=EU") == [1, 2]
    assert judged == [node_id(2)]


def test_a_report_that_is_younger_than_the_list_is_heeded_at_the_pick() -> None:
    fleet = places("de", "de")
    gate = fleet.gate("region=EU")
    assert numbers(gate.stages()[0]) == [1, 2]
    fleet.table.set_specs(node_id(1), some_specs(region="us"))
    assert numbers(gate.stages()[0]) == [1, 2]  # at most twice a second
    assert not gate.admits(node_id(1))
    assert gate.admits(node_id(2))
    assert numbers(gate.stages()[0]) == [2]  # who was refused is not offered again


def test_a_node_that_comes_or_goes_is_heeded_at_once() -> None:
    fleet = places("us", "us")
    assert fleet.allowed("region=EU") == []
    fleet.table.connect(node_id(3), some_specs(region="de"), now_s=NOW_S)
    assert fleet.allowed("region=EU") == [3]
    fleet.table.set_specs(node_id(1), some_specs(a_model(id="another")))
    assert_adds_up(fleet.decide(fleet.gate("region=EU")), kept=8)
    fleet.table.set_specs(node_id(3), some_specs(a_model(id="another"), region="de"))
    assert fleet.allowed("region=EU") == []
    assert not fleet.gate("region=EU").admits(node_id(3))


def test_a_longer_way_is_heeded_though_nothing_was_reported() -> None:
    fleet = places("de")
    line = f"max_ttft_ms<={SPEED.ttft_s * 1000 + 100}"
    gate = fleet.gate(line)
    assert gate.admits(node_id(1))
    assert fleet.allowed(line) == [1]
    fleet.table.set_rtt(node_id(1), 5.0, now_s=NOW_S)
    assert not gate.admits(node_id(1))
    fleet.clock.advance(FRESH_S)
    assert fleet.allowed(line) == []


def test_an_owner_who_is_known_later_counts() -> None:
    fleet = places("de", "de")
    assert fleet.allowed("only=acc_ann") == []
    fleet.table.set_owner(node_id(1), ANN)
    fleet.table.set_specs(node_id(2), some_specs(name="other"))
    fleet.clock.advance(FRESH_S)
    assert fleet.allowed("only=acc_ann") == [1]
    assert fleet.allowed("ignore=ACC_ANN") == [2]


def test_names_are_ids_names_and_owners_in_any_case() -> None:
    fleet = Fleet(some_specs(name="Attic"), some_specs(name="cellar"), some_specs(name="barn"))
    fleet.table.set_owner(node_id(3), ANN)
    assert fleet.allowed("only=ATTIC") == [1]
    assert fleet.allowed(f"only={node_id(2)}") == [2]
    assert fleet.allowed("only=acc_ann") == [3]
    assert fleet.allowed("only=acc_an") == []


# bounds


def test_policies_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLICIES_COMPILED_MAX", 3)
    fleet = places("de")
    for hours in range(10):
        assert fleet.allowed(f"max_hourly<={hours + 1}") == [1]
    assert len(fleet.eligibility._verdicts) == 3
    assert fleet.eligibility._verdict_count == 3


def test_nothing_is_kept_of_a_model_that_nobody_has_any_more() -> None:
    fleet = Fleet(some_specs(), some_specs(DEAR))
    gate = fleet.gate("region=EU", default_cap=USUAL)
    gate.stages()
    fleet.gate(default_cap=USUAL).stages()
    eligibility = fleet.eligibility
    eligibility.forget_absent_models()
    assert eligibility._verdicts
    for number in (1, 2):
        fleet.table.set_specs(node_id(number), some_specs(a_model(id="another")))
    eligibility.forget_absent_models()
    assert (len(eligibility._verdicts), eligibility._verdict_count) == (0, 0)
    assert (eligibility._facts, eligibility._highest, eligibility._uniform) == ({}, {}, {})


def test_policies_that_nobody_uses_are_forgotten_while_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICTS_IDLE_MAX", 15)
    fleet = Fleet(*(some_specs(region="de") for _ in range(10)))
    eligibility = fleet.eligibility
    for hours in (1, 2, 3):
        fleet.gate(f"max_hourly<={hours}").stages()
    fleet.clock.advance(IDLE_S + 1)
    used = fleet.gate("max_hourly<=3")
    used.stages()
    eligibility.forget_idle()
    assert (len(eligibility._verdicts), eligibility._verdict_count) == (1, 10)
    assert list(eligibility._gates.values()) == [used]
    fleet.clock.advance(10 * IDLE_S)
    eligibility.forget_idle()
    assert eligibility._verdict_count == 10, "few are kept for whoever comes back"
    assert not eligibility._gates
    assert fleet.allowed("max_hourly<=1") == list(range(1, 11))


def test_so_are_the_verdicts_of_policies_on_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICTS_KEPT_MAX", 25)
    fleet = Fleet(*(some_specs(region="de") for _ in range(10)))
    for hours in range(10):
        assert len(fleet.allowed(f"max_hourly<={hours + 1}")) == 10
    assert (len(fleet.eligibility._verdicts), fleet.eligibility._verdict_count) == (2, 20)


# order


def ordered(fleet: Fleet, line: str) -> list[list[int] | None]:
    return [None if stage is None else numbers(stage) for stage in fleet.gate(line).stages()]


def named_fleet() -> Fleet:
    fleet = Fleet(*(some_specs(name=name) for name in ("a", "b", "a", "d")))
    fleet.table.set_owner(node_id(2), ANN)
    return fleet


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        ("order=a,b", [[1, 3], [2], None]),
        ("order=b,a", [[2], [1, 3], None]),
        ("order=nobody,acc_ann", [[2], None]),
        ("order=nobody", [None]),
        ("order=a,b ignore=d", [[1, 3], [2], [1, 2, 3]]),
        ("order=a,b only=b,d", [[2], [2, 4]]),
        ("order=a allow_fallbacks=false", [[1, 3], [1, 3]]),
        ("order=a ignore=a", [[2, 4]]),
    ],
)
def test_an_order_is_tried_name_by_name_then_the_rest(line: str, stages: Sequence[list[int] | None]) -> None:
    assert ordered(named_fleet(), line) == stages


def test_the_first_name_that_can_have_the_job_has_it_and_the_funnel_says_so() -> None:
    fleet = named_fleet()
    decision = fleet.decide(fleet.gate("order=b,a"))
    assert candidates(decision) == [2]
    assert decision.rejected_by_policy == {"order": 3}
    assert_adds_up(decision, kept=8)
    fleet.table.disconnect(node_id(2), unix_s=0)
    assert candidates(fleet.decide(fleet.gate("order=b,a"))) == [1, 3]
    for number in (1, 3):
        fleet.table.disconnect(node_id(number), unix_s=0)
    assert candidates(fleet.decide(fleet.gate("order=b,a"))) == [4]
    assert candidates(fleet.decide(fleet.gate("order=b,a allow_fallbacks=false"))) == []


# the payer's own nodes


def owned(*mine: int, count: int = 3) -> Fleet:
    fleet = Fleet(*(some_specs() for _ in range(count)))
    for number in mine:
        fleet.table.set_owner(node_id(number), ANN)
    return fleet


def test_own_nodes_are_barred_only_where_free_credits_pay() -> None:
    fleet = owned(2)
    barred = fleet.gate(payer=ANN)
    assert candidates(fleet.decide(barred)) == [1, 3]
    assert not barred.admits(node_id(2))
    assert fleet.eligibility.gate(ANY, MODEL) is None
    other = fleet.gate("gpu_count>=1", payer=AccountId("acc_bob"))
    assert candidates(fleet.decide(other)) == [1, 2, 3]


def test_a_node_that_becomes_the_payers_own_while_the_job_waits_is_barred_too() -> None:
    fleet = owned()
    gate = fleet.gate(payer=ANN)
    assert candidates(fleet.decide(gate)) == [1, 2, 3]
    fleet.table.set_owner(node_id(1), ANN)
    assert candidates(fleet.decide(gate)) == [2, 3]
    assert not gate.admits(node_id(1))


def test_an_own_node_is_counted_once_whatever_else_is_wrong_with_it() -> None:
    fleet = owned(1, 2, 3, count=5)
    fleet.table.disconnect(node_id(1), unix_s=0)
    fleet.table.set_specs(node_id(2), some_specs(region="us"))
    for line in ("", "region=EU"):
        decision = fleet.decide(fleet.gate(line, payer=ANN))
        assert_adds_up(decision, kept=8)
        assert candidates(decision) == [4, 5]
        funnel = {step.filter: step.dropped for step in describe(decision, {}).funnel}
        assert funnel["own_node"] == (2 if line else 3)
        assert funnel["online"] == 0


def test_somebody_whose_own_nodes_are_all_there_are_is_told_so() -> None:
    fleet = owned(1, 2, 3)
    gate = fleet.gate(payer=ANN)
    error = no_match_error(fleet.decide(gate), fleet.table, gate)
    assert (error.code, error.status) == ("no_eligible_node", 503)
    assert "own_node (3)" in error.message


# the default price cap


def priced(*models: str) -> Fleet:
    kinds = {"usual": a_model(), "dear": DEAR, "cap": a_model(completion_price_nano=240_000_000)}
    return Fleet(*(some_specs(kinds[kind], region="de") for kind in models))


def test_where_nobody_is_dearer_than_usual_everybody_is_looked_at() -> None:
    fleet = priced("usual", "cap")
    gate = fleet.gate(default_cap=USUAL)
    assert list(gate.stages()) == [None]
    assert gate.admits(node_id(2))


def test_a_node_dearer_than_what_was_held_gets_no_job() -> None:
    fleet = priced("usual", "dear", "cap")
    gate = fleet.gate(default_cap=USUAL)
    decision = fleet.decide(gate)
    assert candidates(decision) == [1, 3]
    assert decision.rejected_by_policy == {"usual_price": 1}
    assert_adds_up(decision, kept=8)
    assert not gate.admits(node_id(2))


def test_one_that_raises_its_price_a_moment_before_gets_none_either() -> None:
    fleet = priced("usual", "usual")
    gate = fleet.gate(default_cap=USUAL)
    assert list(gate.stages()) == [None]
    fleet.table.set_specs(node_id(2), some_specs(DEAR))
    assert not gate.admits(node_id(2))
    assert candidates(fleet.decide(gate)) == [1]
    policed = fleet.gate("gpu_count>=1", default_cap=USUAL)
    fleet.decide(policed)
    fleet.table.set_specs(node_id(1), some_specs(msgspec.structs.replace(DEAR, state="warm")))
    assert not policed.admits(node_id(1))
    assert candidates(fleet.decide(policed)) == []


def test_only_the_direction_that_the_policy_leaves_open_is_usual() -> None:
    fleet = priced("usual", "dear")
    open_prompt = fleet.gate("max_price.completion<=9", default_cap=MaxPrice(prompt=80_000_000))
    assert candidates(fleet.decide(open_prompt)) == [1, 2]
    both = fleet.gate("max_price<=9")
    assert candidates(fleet.decide(both)) == [1, 2]


def test_whoever_finds_only_dear_nodes_is_told_what_price_would_help() -> None:
    fleet = priced("dear")
    gate = fleet.gate(default_cap=USUAL)
    error = no_match_error(fleet.decide(gate), fleet.table, gate)
    assert error.code == "no_eligible_node"
    assert "usual_price (1)" in error.message
    assert "max_price" in error.message
    assert "adds 1 node" in error.message


def test_what_would_help_is_worked_out_once_per_list_and_not_over_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELAXATIONS_NODES_MAX", 2)
    fleet = places("us", "us", "us")
    gate = fleet.gate("region=EU")
    gate.stages()
    assert gate.relaxations() == ["region EU→EU,US adds at least 2 nodes"]
    monkeypatch.setattr(module, "relaxations", None)  # to ask once more would be a crash
    assert gate.relaxations() == ["region EU→EU,US adds at least 2 nodes"]
    assert fleet.gate(payer=ANN).relaxations() == []


def test_a_dear_node_that_is_not_there_costs_nobody_anything() -> None:
    fleet = priced("usual", "dear")
    fleet.table.disconnect(node_id(2), unix_s=0)
    assert list(fleet.gate(default_cap=USUAL).stages()) == [None]


def test_an_equal_fleet_is_the_same_with_a_gate_and_without() -> None:
    table = a_table(20)
    eligibility = Eligibility(table, clock=ManualClock(now_s=NOW_S))
    gate = eligibility.gate(read_line("region=EU"), MODEL)
    free = match_through(None, a_job(), table, situation(), ranking=BALANCED, seed=1)
    assert match_through(gate, a_job(), table, situation(), ranking=BALANCED, seed=1).ranked == free.ranked


def test_nodes_that_are_away_would_not_help() -> None:
    fleet = places("us", "us", "us")
    fleet.table.disconnect(node_id(1), unix_s=0.0)
    assert fleet.gate("region=EU").relaxations() == ["region EU→EU,US adds 2 nodes"]
