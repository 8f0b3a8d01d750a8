"""Whose turn it is among nodes that were never timed, and how many jobs they may have."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.matcher.newcomers import TRIAL_SHARE, TRIALS_AHEAD, TURNS_KEPT, Newcomers
from tests.unit.inference.nodes import MODEL, node_id

ANN, BEN = AccountId("ann"), AccountId("ben")


def newcomers(**owned: int) -> Newcomers:
    """So many nodes of each owner, numbered on."""
    found, number = Newcomers(), 0
    for owner, count in owned.items():
        for _ in range(count):
            number += 1
            found.add(MODEL, node_id(number), AccountId(owner))
    return found


def take_turns(found: Newcomers, count: int) -> list[NodeId]:
    taken = []
    for _ in range(count):
        first, *_ = found.turn(MODEL)
        found.note_job(MODEL, first)
        taken.append(first)
    return taken


def test_ten_nodes_of_one_owner_have_one_owners_turns() -> None:
    """The cheapest lie: join ten nodes, to be tried ten times as often."""
    found = newcomers(ann=10, ben=1)
    assert Counter(node == node_id(11) for node in take_turns(found, 20)) == {True: 10, False: 10}


def test_the_nodes_of_one_owner_take_turns() -> None:
    assert take_turns(newcomers(ann=3), 6) == [node_id(n) for n in (1, 2, 3, 1, 2, 3)]


def test_the_next_few_are_of_as_many_owners_as_there_are() -> None:
    found = newcomers(ann=20, ben=2)
    assert found.turn(MODEL)[:4] == (node_id(1), node_id(21), node_id(2), node_id(22))
    assert len(found.turn(MODEL)) == TURNS_KEPT


def test_leaving_and_coming_back_is_no_way_to_the_front() -> None:
    found = newcomers(ann=1, ben=1)
    found.discard(MODEL, node_id(1))
    found.add(MODEL, node_id(1), ANN)
    assert found.turn(MODEL) == (node_id(2), node_id(1))


def test_a_node_that_changes_its_owner_is_counted_once() -> None:
    found = newcomers(ann=1)
    found.add(MODEL, node_id(1), BEN)
    found.add(MODEL, node_id(1), BEN)
    assert found.count(MODEL) == 1
    assert found.nodes(MODEL) == found.turn(MODEL) == (node_id(1),)


def test_who_is_not_there_changes_nothing() -> None:
    found = newcomers(ann=1)
    found.discard(MODEL, node_id(9))
    found.discard("another", node_id(1))
    found.note_job("another", node_id(1))
    assert (found.count(MODEL), found.count("another")) == (1, 0)
    assert found.turn("another") == found.nodes("another") == ()
    assert not found.may_try("another")


def test_a_model_without_nodes_is_forgotten() -> None:
    found = newcomers(ann=1)
    found.discard(MODEL, node_id(1))
    found.forget(MODEL)
    assert found._turns == {}


@pytest.mark.parametrize("jobs", [0, 7, 1000])
def test_newcomers_have_ten_trials_and_then_a_small_share(jobs: int) -> None:
    found, trials = newcomers(ann=5), 0
    for _ in range(jobs + 10):
        if found.may_try(MODEL):
            trials += 1
            found.note_job(MODEL, found.turn(MODEL)[0])
        else:
            found.note_job(MODEL, node_id(99))
    assert trials <= TRIALS_AHEAD + TRIAL_SHARE * (jobs + 10)
    assert trials >= min(jobs + 10, TRIALS_AHEAD - 1)


def test_an_idle_network_saves_no_more_than_ten_trials() -> None:
    found = newcomers(ann=1)
    for _ in range(10_000):
        found.note_job(MODEL, node_id(99))
    took = 0
    while found.may_try(MODEL):
        found.note_job(MODEL, node_id(1))
        took += 1
    assert took == TRIALS_AHEAD


@given(st.lists(st.tuples(st.sampled_from("acdj"), st.integers(1, 6), st.sampled_from("xyz")), max_size=60))
def test_every_newcomer_has_a_turn_and_nobody_else(events: list[tuple[str, int, str]]) -> None:
    found, known = Newcomers(), {}
    for what, number, owner in events:
        if what == "a":
            found.add(MODEL, node_id(number), AccountId(owner))
            known[node_id(number)] = owner
        elif what == "d":
            found.discard(MODEL, node_id(number))
            known.pop(node_id(number), None)
        else:
            found.note_job(MODEL, node_id(number))
        assert set(found.nodes(MODEL)) == set(known)
        assert set(found.turn(MODEL)) == set(known), "six fit into the next few"
        first = {known[node] for node in found.turn(MODEL)[: len(set(known.values()))]}
        assert first == set(known.values()), "every owner comes before anybody comes twice"
