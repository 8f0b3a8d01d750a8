"""Who can do what a request needs: by a node's word, by what is common, and by what is known right now."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import NoEligibleNode, RemoteUrlRefused, UnsupportedContent, UnsupportedParameter
from sparewatt.inference.capabilities import (
    COMMON,
    NOTHING_REQUIRED,
    RequiredCapabilities,
    best_of,
    fetch_capability,
    is_able,
    reported_by,
    unable_error,
)
from sparewatt.inference.dispatch.node_selection import match_through, no_match_error
from sparewatt.inference.eligibility import Eligibility, PolicyGate
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import FRESH_S
from sparewatt.policy.model import ANY
from sparewatt.policy.parser import read_line
from sparewatt.protocol.link.node_report import Capability
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.fleets import assert_adds_up
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, node_id, situation, some_specs

Says = tuple[Capability, ...] | None
VECTORS = RequiredCapabilities(frozenset({"embeddings"}))


class Fleet:
    def __init__(self, *says: Says, region: str = "DE") -> None:
        self.clock = ManualClock(now_s=NOW_S)
        self.table = NodeTable()
        for number, each in enumerate(says, start=1):
            self.report(number, each, region=region)
        self.eligibility = Eligibility(self.table, clock=self.clock)

    def report(self, number: int, says: Says, *, region: str = "DE", hosts: tuple[str, ...] = ()) -> None:
        specs = some_specs(a_model(capabilities=says), region=region, fetch_hosts=hosts)
        if self.table.get(node_id(number)) is None:
            self.table.connect(node_id(number), specs, now_s=NOW_S)
        else:
            self.table.set_specs(node_id(number), specs)

    def gate(self, needs: RequiredCapabilities, line: str = "") -> PolicyGate:
        gate = self.eligibility.gate(read_line(line) if line else ANY, MODEL, needs=needs)
        assert gate is not None
        return gate

    def candidates(self, gate: PolicyGate) -> list[int]:
        decision = match_through(gate, a_job(), self.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
        return sorted(int(each.node_id, 16) for each in decision.ranked)


@pytest.mark.parametrize(
    ("needs", "says", "can"),
    [
        (NOTHING_REQUIRED, None, True),
        (NOTHING_REQUIRED, (), True),
        (RequiredCapabilities(COMMON), None, True),
        (VECTORS, None, False),
        (VECTORS, ("embeddings",), True),
        (RequiredCapabilities(frozenset({"vision"})), None, False),
        (RequiredCapabilities(frozenset({"chat"}), declared=True), None, False),
        (RequiredCapabilities(frozenset({"chat"}), declared=True), ("chat", "tools"), True),
        (RequiredCapabilities(frozenset({"chat", "tools"})), ("chat",), False),
    ],
)
def test_a_node_is_believed_as_far_as_it_says(needs: RequiredCapabilities, says: Says, *, can: bool) -> None:
    assert is_able(needs, says) is can


def test_a_job_without_needs_and_policy_passes_everywhere() -> None:
    assert Fleet(None).eligibility.gate(ANY, MODEL) is None


def test_where_all_can_nobody_is_looked_at() -> None:
    assert list(Fleet(("embeddings",), ("embeddings", "chat")).gate(VECTORS).stages()) == [None]


def test_only_those_who_can_are_left() -> None:
    fleet = Fleet(None, ("embeddings",), ("chat",), ("chat", "embeddings"))
    assert fleet.candidates(fleet.gate(VECTORS)) == [2, 4]


def test_needs_and_policy_must_both_hold() -> None:
    fleet = Fleet(("embeddings",), region="US")
    fleet.report(2, ("embeddings",), region="DE")
    fleet.report(3, None, region="DE")
    assert fleet.candidates(fleet.gate(VECTORS, "region=EU")) == [2]


def test_each_need_is_a_filter_of_its_own_in_the_funnel() -> None:
    fleet = Fleet(("chat",), ("chat", "tools"), ("chat", "tools", "vision"))
    gate = fleet.gate(RequiredCapabilities(frozenset({"tools", "vision"})))
    decision = match_through(gate, a_job(), fleet.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
    steps = {step.filter: step.dropped for step in describe(decision, {}).funnel}
    assert (steps["capability.tools"], steps["capability.vision"]) == (1, 1)
    assert_adds_up(decision, kept=8)


def test_a_node_that_can_no_longer_is_refused_at_once() -> None:
    fleet = Fleet(("embeddings",), ("embeddings",))
    gate = fleet.gate(VECTORS)
    assert gate.admits(node_id(1))
    fleet.report(1, ("chat",))
    assert not gate.admits(node_id(1))
    assert fleet.candidates(gate) == [2]


def test_a_node_that_learned_it_is_found_in_time() -> None:
    fleet = Fleet(("chat",), ("embeddings",))
    assert fleet.candidates(fleet.gate(VECTORS)) == [2]
    fleet.report(1, ("chat", "embeddings"))
    fleet.clock.advance(FRESH_S)
    assert fleet.candidates(fleet.gate(VECTORS)) == [1, 2]


def test_a_model_that_nobody_serves_so_is_the_requests_fault() -> None:
    fleet = Fleet(("chat",))
    gate = fleet.gate(VECTORS)
    decision = match_through(gate, a_job(), fleet.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
    error = no_match_error(decision, fleet.table, gate)
    assert isinstance(error, UnsupportedParameter)
    assert "embeddings" in error.message


def test_where_a_policy_also_rules_out_it_is_the_policys_fault() -> None:
    fleet = Fleet(("chat",))
    fleet.report(2, ("embeddings",), region="US")
    gate = fleet.gate(VECTORS, "region=EU")
    decision = match_through(gate, a_job(), fleet.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
    error = no_match_error(decision, fleet.table, gate)
    assert isinstance(error, NoEligibleNode)
    assert "region" in error.message


def test_pictures_are_content() -> None:
    assert isinstance(unable_error({"capability.vision": 2}, "m"), UnsupportedContent)
    assert unable_error({"region": 1}, "m") is None
    assert unable_error({}, "m") is None


# hosts to fetch from

SEES: tuple[Capability, ...] = ("chat", "vision")
HOST = "images.example.org"
PICTURE_BY_ADDRESS = RequiredCapabilities(frozenset({"chat", "vision", fetch_capability(HOST)}))


def test_a_picture_by_address_goes_to_a_node_that_may_fetch_it() -> None:
    fleet = Fleet(SEES, SEES, SEES)
    fleet.report(2, SEES, hosts=(HOST, "other.example"))
    fleet.report(3, SEES, hosts=("other.example",))
    gate = fleet.gate(PICTURE_BY_ADDRESS)
    assert fleet.candidates(gate) == [2]
    assert [gate.admits(node_id(number)) for number in (1, 2, 3)] == [False, True, False]


def test_a_node_that_may_fetch_no_more_is_not_admitted_any_more() -> None:
    fleet = Fleet(SEES, SEES)
    fleet.report(1, SEES, hosts=(HOST,))
    gate = fleet.gate(PICTURE_BY_ADDRESS)
    assert fleet.candidates(gate) == [1]
    fleet.report(1, SEES)
    assert not gate.admits(node_id(1))


def test_to_fetch_is_not_to_see() -> None:
    fleet = Fleet(("chat",))
    fleet.report(1, ("chat",), hosts=(HOST,))
    assert fleet.candidates(fleet.gate(PICTURE_BY_ADDRESS)) == []


def test_if_nobody_fetches_from_there_the_client_is_told_to_send_data() -> None:
    fleet = Fleet(SEES, ("chat",))
    gate = fleet.gate(PICTURE_BY_ADDRESS)
    decision = match_through(gate, a_job(), fleet.table, situation(now_s=NOW_S), ranking=BALANCED, seed=1)
    error = no_match_error(decision, fleet.table, gate)
    assert isinstance(error, RemoteUrlRefused)
    assert "data: URL" in error.message
    assert HOST not in str(describe(decision, {}))  # a client's text is no name of a filter


def test_hosts_add_to_what_a_node_says_and_take_nothing_away() -> None:
    specs, silent = some_specs(a_model(), fetch_hosts=(HOST,)), a_model(capabilities=None)
    assert reported_by(specs, silent) == COMMON | {fetch_capability(HOST)}
    assert reported_by(specs, a_model(capabilities=SEES)) == {*SEES, fetch_capability(HOST)}
    assert reported_by(some_specs(a_model()), silent) is None


TOOLS = frozenset({"tools"})


def test_generic_tools_are_tools_unless_a_request_requires_its_parameters() -> None:
    generic = ("chat", "tools", "tools_generic")
    assert is_able(RequiredCapabilities(TOOLS), generic)
    assert not is_able(RequiredCapabilities(TOOLS, declared=True), generic)
    assert is_able(RequiredCapabilities(frozenset({"chat"}), declared=True), generic)
    assert is_able(RequiredCapabilities(TOOLS, declared=True), ("chat", "tools"))


def test_a_model_has_generic_tools_if_no_node_has_others() -> None:
    generic, native = ("chat", "tools", "tools_generic"), ("chat", "tools")
    assert best_of([generic, generic]) == ["chat", "tools", "tools_generic"]
    assert best_of([generic, native]) == ["chat", "tools"]
    assert best_of([generic, ("chat",)]) == ["chat", "tools", "tools_generic"]
    assert best_of([]) == []
