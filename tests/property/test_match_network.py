"""The match of an order over a simulated network: loss, reordering, crashes, liars and hostile bidders.

Many more orders are matched in tests/soak/test_match_network.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.market.faults import find_faults
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.market.match.replay import pool_of
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.bugs import BUGS
from tests.market_network.happenings import EVERYTHING, Happenings
from tests.market_network.invariants import violations
from tests.market_network.memory import remembered
from tests.market_network.planted import Bug, planted
from tests.market_network.scenario import WEIGHTS, Crash, Lie, Scenario, Trick, scenario_of
from tests.market_network.world import simulate

ORDERS = 200
CHUNKS = 4
RUNS_PER_BUG = 100


@pytest.fixture
def quick() -> Iterator[None]:
    with remembered():
        yield


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_order_breaks_an_invariant(chunk: int, quick: None) -> None:
    """And what the scenarios ask for has come to be, in every chunk."""
    happened: Happenings = Counter()
    for seed in range(chunk * ORDERS // CHUNKS, (chunk + 1) * ORDERS // CHUNKS):
        world = simulate(scenario_of(seed))
        assert violations(world) == [], f"seed {seed}"
        happened += world.watch.happened
    assert set(EVERYTHING) <= happened.keys(), set(EVERYTHING) - happened.keys()


def test_the_orders_have_every_kind_of_trouble() -> None:
    scenarios = [scenario_of(seed) for seed in range(ORDERS)]
    assert {lie for each in scenarios for lie in each.lies.values()} == set(Lie)
    assert {trick for each in scenarios for trick in each.tricks} == set(Trick)
    assert {each.weights for each in scenarios} == set(WEIGHTS)
    assert {each.loss for each in scenarios} == {0.0, 0.1, 0.3, 0.5}
    assert {crash.on_record for each in scenarios for crash in each.crashes} == {True, False}
    assert any(each.reorg_changes_snapshot and each.lookup_reorg_ms for each in scenarios)
    for counted in ("partition", "lookup_reorg_ms", "acceptance_reorgs", "duplicates", "as_json", "is_calm", "ties"):
        assert sum(bool(getattr(each, counted)) for each in scenarios) >= 3, counted


def test_a_seed_is_one_match_for_ever(quick: None) -> None:
    for seed in (5, 17, 44):
        first, again = simulate(scenario_of(seed)), simulate(scenario_of(seed))
        assert first.chain.accepted == again.chain.accepted
        assert first.chain.accepted is not None
        assert first.timeline.now_ms == again.timeline.now_ms
        assert len(first.watch.messages) == len(again.watch.messages)


@pytest.mark.parametrize("lie", [Lie.EQUIVOCATING, Lie.OMITTING, Lie.WRONG_RESULT, Lie.SPLITTING])
def test_a_liar_is_caught_by_what_it_signed(lie: Lie, quick: None) -> None:
    """By all that was sent, and by what the honest validators publish alike."""
    caught: Counter[str] = Counter()
    for seed in range(10):
        tricks = (Trick.NONE, Trick.NONE, Trick.NONE)
        scenario = Scenario(seed=seed, lies={2: lie}, tricks=tricks, prices=(3, 2, 1), liar_leads=True)
        world = simulate(scenario)
        assert violations(world) == []
        indices = dict.fromkeys(world.context.weights, 0)
        faults = find_faults(EvidencePool(world.context).add_all(world.watch.messages.values()), indices=indices)
        records = [each.last_record for each in world.validators if each.is_honest and each.last_record is not None]
        published = find_faults(pool_of(records), indices=indices)
        assert {fault.fault for fault in published} == {fault.fault for fault in faults}
        caught.update({fault.fault.name for fault in faults})
        assert {culprit for fault in faults for culprit in fault.culprits} <= {world.validators[2].address}
    expected = {
        Lie.EQUIVOCATING: {"DOUBLE_SIGN"},
        Lie.OMITTING: {"OMISSION"},
        Lie.WRONG_RESULT: {"RANK", "LEAF", "ORDER", "OMISSION", "DOUBLE_SIGN"},
        Lie.SPLITTING: {"DOUBLE_SIGN"},
    }
    assert expected[lie] <= caught.keys()


@pytest.mark.parametrize("lie", [None, *Lie])
def test_one_faulty_leader_costs_one_round_at_most(lie: Lie | None, quick: None) -> None:
    for seed in range(8):
        lies = {} if lie is None else {1: lie}
        world = simulate(Scenario(seed=seed, lies=lies, liar_leads=True))
        assert violations(world) == []
        assert world.chain.accepted is not None
        assert world.chain.accepted.round <= len(lies)
        assert world.chain.accepted.task.bid_count == 2


@pytest.mark.parametrize("stops_at", [1, 2, 3])
def test_a_leader_killed_at_any_step_costs_one_round_at_most(stops_at: int, quick: None) -> None:
    """Its commit list, its reveal list or its vote is stored and never sent."""
    for seed in range(8):
        world = simulate(Scenario(seed=seed, leader_stops_at=stops_at))
        assert violations(world) == []
        assert world.chain.accepted is not None
        assert world.chain.accepted.round == 1


@pytest.mark.parametrize("on_record", [True, False])
def test_windows_that_start_anew_after_a_restart_break_nothing(on_record: bool, quick: None) -> None:  # noqa: FBT001
    """Everybody restarts at once, also between the two lists; one bidder waits for the prices of the others."""
    tricks, prices = (Trick.NONE, Trick.NONE, Trick.COPYCAT), (3, 2, 1)
    for at_ms in range(50, 1_500, 110):
        crashes = tuple(Crash(number, at_ms, 120, on_record) for number in range(4))
        world = simulate(Scenario(seed=at_ms, tricks=tricks, prices=prices, crashes=crashes))
        assert violations(world) == [], at_ms
        accepted = world.chain.accepted
        assert accepted is not None
        assert accepted.task.bid_count == 2, "no honest bid is lost, and none that came after a reveal is taken"


@pytest.mark.parametrize("lie", [Lie.EQUIVOCATING, Lie.SPLITTING])
def test_a_window_that_opens_again_after_a_reveal_certifies_nothing_late(lie: Lie, quick: None) -> None:
    """I5: one validator restarts when others have closed, another takes every commit whenever it comes."""
    tricks, prices = (Trick.NONE, Trick.NONE, Trick.COPYCAT), (3, 2, 1)
    for at_ms in range(300, 1_300, 100):
        world = simulate(Scenario(seed=at_ms, lies={0: lie}, tricks=tricks, prices=prices, liar_leads=True,
                                  crashes=(Crash(1, at_ms, 60, on_record=False),)))  # fmt: skip
        assert violations(world) == [], at_ms
        assert world.chain.accepted is not None
        assert world.bidders[2].committed_ms is not None, "it did commit"


def test_without_bids_an_order_ends_with_an_empty_tree(quick: None) -> None:
    for tricks in ((), (Trick.DECLINES,), (Trick.FORGED, Trick.UNBONDED), (Trick.OVER_CAP,)):
        world = simulate(Scenario(seed=1, tricks=tricks, prices=(1,) * len(tricks)))
        assert violations(world) == []
        accepted = world.chain.accepted
        assert accepted is not None
        assert (accepted.task.first, accepted.leaves) == (0xFFFF, ())
        assert accepted.task.bid_count == (1 if Trick.OVER_CAP in tricks else 0)


def test_the_order_in_which_messages_come_does_not_change_the_result(quick: None) -> None:
    """I11: other delays, other validators first, duplicates; the same bids."""
    tricks, prices = (Trick.NONE,) * 5, (5, 4, 3, 2, 1)
    tasks = set()
    for duplicates in (0.0, 0.5):
        for slowest in (1, 5, 20):
            scenario = Scenario(seed=9, tricks=tricks, prices=prices, delay_ms=(1, slowest), duplicates=duplicates)
            accepted = simulate(scenario).chain.accepted
            assert accepted is not None
            tasks.add(struct_hash(accepted.task))
    assert len(tasks) == 1


def test_there_are_twelve_bugs_or_more() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    with planted(bug, tmp_path) as core, remembered():
        for seed in (bug.seed, *range(RUNS_PER_BUG)):
            found = violations(simulate(scenario_of(seed), core=core))
            if any(each.startswith(bug.found_as) for each in found):
                return
    pytest.fail(f"{RUNS_PER_BUG} orders did not show it")
