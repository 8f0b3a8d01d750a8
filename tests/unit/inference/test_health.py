from __future__ import annotations

import pytest

from sparewatt.inference.matcher.health import is_offline, is_suspect, missed_heartbeats, state_of
from sparewatt.inference.matcher.model import HealthRules, NodeState
from sparewatt.protocol.node import NodeLoad
from tests.unit.inference.nodes import NOW_S, a_row

RULES = HealthRules()
NEURALGRID = HealthRules(heartbeat_s=30.0, suspect_after_missed=3, offline_after_missed=3)


def state_after(silence_s: float, rules: HealthRules = RULES) -> NodeState:
    return state_of(a_row(last_heard_s=NOW_S), now_s=NOW_S + silence_s, rules=rules)


@pytest.mark.parametrize(
    ("silence_s", "missed"), [(0, 0), (5.4, 0), (5.5, 1), (10.4, 1), (10.5, 2), (15.4, 2), (15.5, 3)]
)
def test_a_heartbeat_is_missed_when_its_time_and_the_grace_are_over(silence_s: float, missed: int) -> None:
    assert missed_heartbeats(a_row(), now_s=NOW_S + silence_s, rules=RULES) == missed


def test_a_clock_that_reads_before_the_last_word_misses_nothing() -> None:
    assert missed_heartbeats(a_row(last_heard_s=NOW_S + 60), now_s=NOW_S, rules=RULES) == 0


@pytest.mark.parametrize(
    ("silence_s", "state"),
    [(10.4, NodeState.ONLINE), (10.5, NodeState.SUSPECT), (15.4, NodeState.SUSPECT), (15.5, NodeState.OFFLINE)],
)
def test_suspect_after_two_missed_and_offline_after_three(silence_s: float, state: NodeState) -> None:
    assert state_after(silence_s) is state


def test_a_dropped_socket_is_offline_at_once() -> None:
    row = a_row(connected=False, last_heard_s=NOW_S)
    assert is_offline(row, now_s=NOW_S, rules=RULES)
    assert not is_offline(a_row(), now_s=NOW_S, rules=RULES)


@pytest.mark.parametrize(("silence_s", "state"), [(90.4, NodeState.ONLINE), (90.5, NodeState.OFFLINE)])
def test_the_heartbeats_of_neuralgrid_are_a_setting(silence_s: float, state: NodeState) -> None:
    assert state_after(silence_s, NEURALGRID) is state


def test_a_node_that_failed_a_job_is_suspect_for_a_while() -> None:
    row = a_row(suspect_until_s=NOW_S + 45)
    assert is_suspect(row, now_s=NOW_S + 1, rules=RULES)
    row.last_heard_s = NOW_S + 45
    assert not is_suspect(row, now_s=NOW_S + 45, rules=RULES)


def test_draining_shows_before_suspect_and_busy_and_offline_before_all() -> None:
    row = a_row(load=NodeLoad(draining=True), suspect_until_s=NOW_S + 45, own_jobs=4)
    assert state_of(row, now_s=NOW_S, rules=RULES) is NodeState.DRAINING
    row.connected = False
    assert state_of(row, now_s=NOW_S, rules=RULES) is NodeState.OFFLINE


@pytest.mark.parametrize(("jobs", "state"), [(3, NodeState.ONLINE), (4, NodeState.BUSY)])
def test_a_node_is_busy_when_every_slot_is_taken(jobs: int, state: NodeState) -> None:
    assert state_of(a_row(own_jobs=jobs), now_s=NOW_S, rules=RULES) is state
