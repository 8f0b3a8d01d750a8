from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.matcher.formula import BALANCED, PARTS, SUSPECT_S
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import MatchContext, Rejection
from sparewatt.inference.matcher.node_row import HealthRules, NodeState, is_offline, is_suspect, offline_rows, state_of
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import NOW_S, a_job, a_row, table_of

RULES = HealthRules()
NEURALGRID = HealthRules(heartbeat_s=30.0, suspect_after_missed=3, offline_after_missed=3)


def state_after(silence_s: float, rules: HealthRules = RULES) -> NodeState:
    return state_of(a_row(last_heard_s=NOW_S), now_s=NOW_S + silence_s, rules=rules)


@pytest.mark.parametrize("missed", [1, 2, 3, 7])
def test_a_heartbeat_is_missed_when_its_time_and_the_grace_are_over(missed: int) -> None:
    rules = HealthRules(suspect_after_missed=missed, offline_after_missed=missed)
    assert state_after(5.0 * missed + 0.4, rules) is NodeState.ONLINE
    assert state_after(5.0 * missed + 0.5, rules) is NodeState.OFFLINE


def test_a_clock_that_reads_before_the_last_word_misses_nothing() -> None:
    assert state_of(a_row(last_heard_s=NOW_S + 60), now_s=NOW_S, rules=RULES) is NodeState.ONLINE


@given(
    silence_s=st.floats(-10, 200) | st.sampled_from([0.35, 0.65, 0.95, 10.5, 15.5, 90.5]),
    heartbeat_s=st.sampled_from([0.1, 0.3, 1.0, 5.0, 30.0]),
    connected=st.booleans(),
    failed_s=st.sampled_from([0.0, 30.0]),
)
def test_what_is_shown_is_what_the_matcher_goes_by(
    silence_s: float, heartbeat_s: float, *, connected: bool, failed_s: float
) -> None:
    rules = HealthRules(heartbeat_s=heartbeat_s)
    now_s = NOW_S + silence_s
    row = a_row(connected=connected, suspect_until_s=now_s + failed_s)
    decision = match(a_job(), table_of(row), MatchContext(now_s, rules), ranking=BALANCED, seed=1)
    state = state_of(row, now_s=now_s, rules=rules)
    assert decision.rejected_by_reason == ({Rejection.OFFLINE: 1} if state is NodeState.OFFLINE else {})
    if decision.best is not None:
        suspicion = dict(zip(PARTS, decision.best.parts, strict=False))["suspect"]
        assert suspicion == (SUSPECT_S if state is NodeState.SUSPECT else 0.0)


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


@given(st.lists(st.tuples(st.floats(0, 60), st.booleans()), max_size=12), st.floats(0, 60))
def test_who_is_silent_is_said_of_all_as_of_each_and_the_others_are_not_before_their_time(
    heard: list[tuple[float, bool]], later_s: float
) -> None:
    rows = [a_row(number, last_heard_s=NOW_S - ago, connected=there) for number, (ago, there) in enumerate(heard, 1)]
    silent, from_s = offline_rows(rows, now_s=NOW_S, rules=RULES)
    ids = {row.id for row in silent}
    assert ids == {row.id for row in rows if is_offline(row, now_s=NOW_S, rules=RULES)}
    if NOW_S + later_s < from_s - 1e-6:
        others = [row for row in rows if row.id not in ids]
        assert not any(is_offline(row, now_s=NOW_S + later_s, rules=RULES) for row in others)
