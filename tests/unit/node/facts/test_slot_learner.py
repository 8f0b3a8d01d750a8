"""What counts of running and waiting requests teach, and what they must not."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.backend import BackendLoad, BackendTotals
from sparewatt.node.facts.slot_learner import POLLS_MIN, SLOTS_MAX, SlotLearner

ASSUMED = 256


def load(running: int, queued: int = 0, **more: Any) -> BackendLoad:
    return BackendLoad(running=running, queued=queued, **more)


def taught(*loads: BackendLoad | None, assumed: int = ASSUMED) -> SlotLearner:
    learner = SlotLearner()
    for each in loads:
        learner.observe(each, assumed=learner.learned or assumed)
    return learner


def test_requests_that_wait_while_as_many_run_poll_after_poll_are_a_full_server() -> None:
    assert taught(*[load(64, 5)] * POLLS_MIN).learned == 64


@pytest.mark.parametrize(
    "loads",
    [
        [load(64, 5)] * (POLLS_MIN - 1),
        [load(60, 5), load(62, 4), load(64, 3), load(61, 2)],  # a batch that grows and shrinks
        [load(64)] * 10,  # nobody waits
        [load(0, 9)] * 10,  # nothing runs: it does not begin, which says nothing about slots
        [load(64, 5), load(64, 5), None, load(64, 5), load(64, 5)],
        [load(64, 5), load(64, 5), load(64), load(64, 5), load(64, 5)],
    ],
    ids=["too few polls", "a batch that grows", "no waiting", "nothing runs", "an unknown load", "a pause"],
)
def test_anything_else_is_not(loads: list[BackendLoad | None]) -> None:
    assert taught(*loads).learned is None


def test_requests_that_wait_for_memory_teach_nothing() -> None:
    assert taught(*[load(9, 50, kv_used=0.97)] * 10).learned is None
    assert taught(*[load(9, 50, kv_used=0.5)] * 10).learned == 9


def test_waiting_that_never_ends_at_a_server_that_writes_nothing_teaches_nothing() -> None:
    hung = load(3, 100_000, totals=BackendTotals(generation_tokens=1000.0))
    assert taught(*[hung] * 100).learned is None


def test_a_server_that_writes_on_is_believed() -> None:
    loads = [load(3, 8, totals=BackendTotals(generation_tokens=1000.0 * n)) for n in range(POLLS_MIN)]
    assert taught(*loads).learned == 3


def test_more_running_requests_than_assumed_raise_the_slots() -> None:
    assert taught(load(300), load(280), load(290)).learned == 280


def test_one_absurd_count_does_not_raise_them() -> None:
    assert taught(load(100_000), load(10), load(100_000), load(10)).learned is None


def test_what_was_learned_too_low_is_raised_again() -> None:
    learner = taught(*[load(4, 2)] * POLLS_MIN)
    assert learner.learned == 4
    for _ in range(POLLS_MIN):
        learner.observe(load(12), assumed=4)
    assert learner.learned == 12


def test_absurd_counts_stay_within_a_report() -> None:
    assert taught(*[load(100_000, 100_000)] * POLLS_MIN).learned == SLOTS_MAX


def test_after_a_restart_it_begins_anew() -> None:
    learner = taught(*[load(64, 5)] * POLLS_MIN)
    learner.forget()
    learner.observe(load(64, 5), assumed=ASSUMED)
    assert learner.learned is None
