"""A breaker opens at a failure for ever longer times, lets trials through one by one, and closes with an answer."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.inference.matcher.circuit_breaker import (
    LENIENCIES_MAX,
    OPEN_FIRST_S,
    OPEN_S_MAX,
    TRIALS_MAX,
    BreakerState,
    CircuitBreaker,
)

NOW_S = 1000.0


def test_a_node_that_has_not_failed_takes_any_number_of_jobs() -> None:
    breaker = CircuitBreaker()
    assert not any(breaker.begin_job() for _ in range(100))
    assert breaker.state(NOW_S) is BreakerState.CLOSED
    assert breaker.shut_until_s == 0.0


def test_a_failure_opens_it_and_then_one_trial_at_a_time_passes() -> None:
    breaker = CircuitBreaker()
    breaker.note_failure(NOW_S)
    assert breaker.state(NOW_S) is BreakerState.OPEN
    assert breaker.shut_until_s == NOW_S + OPEN_FIRST_S
    later_s = NOW_S + OPEN_FIRST_S
    assert breaker.state(later_s) is BreakerState.HALF_OPEN
    assert breaker.shut_until_s <= later_s
    assert breaker.begin_job()
    assert breaker.shut_until_s == math.inf
    breaker.end_trial()
    assert breaker.shut_until_s <= later_s


def test_a_trial_that_is_answered_closes_it() -> None:
    breaker = CircuitBreaker()
    breaker.note_failure(NOW_S)
    breaker.begin_job()
    breaker.end_trial()
    breaker.note_answer()
    assert breaker.state(NOW_S + OPEN_FIRST_S) is BreakerState.CLOSED
    assert not breaker.begin_job()


def test_each_trial_that_fails_doubles_the_time() -> None:
    breaker, now_s, opened_s = CircuitBreaker(), NOW_S, []
    for _ in range(8):
        breaker.note_failure(now_s)
        opened_s.append(breaker.open_until_s - now_s)
        now_s = breaker.open_until_s
    assert opened_s == [2, 4, 8, 16, 32, OPEN_S_MAX, OPEN_S_MAX, OPEN_S_MAX]


def test_jobs_that_fail_together_count_once() -> None:
    breaker = CircuitBreaker()
    for _ in range(10):
        breaker.note_failure(NOW_S)
    assert breaker.open_until_s == NOW_S + OPEN_FIRST_S
    assert breaker.failures_in_row == 1


def test_a_new_link_is_worth_a_trial_after_one_failure_and_washes_off_no_more() -> None:
    once, often = CircuitBreaker(), CircuitBreaker()
    once.note_failure(NOW_S)
    once.note_reconnected()
    assert once.state(NOW_S) is BreakerState.HALF_OPEN
    often.note_failure(NOW_S)
    often.note_failure(NOW_S + OPEN_FIRST_S)
    often.note_reconnected()
    assert often.state(NOW_S + OPEN_FIRST_S) is BreakerState.OPEN


def test_a_want_of_features_is_a_failure_only_again_and_again() -> None:
    breaker = CircuitBreaker()
    assert all(breaker.note_difference() for _ in range(LENIENCIES_MAX))
    assert not breaker.note_difference()
    breaker.note_answer()
    assert breaker.note_difference()


@given(st.lists(st.floats(0, 200), max_size=40))
def test_it_is_never_open_for_longer_than_the_bound(pauses_s: list[float]) -> None:
    breaker, now_s = CircuitBreaker(), NOW_S
    for pause_s in pauses_s:
        now_s += pause_s
        breaker.note_failure(now_s)
        assert now_s < breaker.open_until_s <= now_s + OPEN_S_MAX
    assert breaker.state(now_s + OPEN_S_MAX) is not BreakerState.OPEN


class BreakerMachine(RuleBasedStateMachine):
    """Jobs go only where the breaker lets them through, as the matcher does while another node is left."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker()
        self.now_s = NOW_S
        self.trials = 0
        self.others = 0

    @rule(pause_s=st.sampled_from([0.0, 0.5, 3.0, 61.0]))
    def time_passes(self, pause_s: float) -> None:
        self.now_s += pause_s

    @precondition(lambda self: self.breaker.shut_until_s <= self.now_s)
    @rule()
    def a_job_begins(self) -> None:
        if self.breaker.begin_job():
            self.trials += 1
        else:
            self.others += 1

    @precondition(lambda self: self.trials)
    @rule(answered=st.booleans())
    def a_trial_ends(self, *, answered: bool) -> None:
        self.trials -= 1
        self.breaker.end_trial()
        self.breaker.note_answer() if answered else self.breaker.note_failure(self.now_s)

    @precondition(lambda self: self.others)
    @rule(answered=st.booleans())
    def another_job_ends(self, *, answered: bool) -> None:
        self.others -= 1
        self.breaker.note_answer() if answered else self.breaker.note_failure(self.now_s)

    @rule()
    def it_comes_back(self) -> None:
        self.breaker.note_reconnected()

    @invariant()
    def one_job_waits_for_a_node_that_failed(self) -> None:
        assert self.breaker.trials == self.trials <= TRIALS_MAX

    @invariant()
    def it_can_always_recover(self) -> None:
        if not self.trials:
            assert self.breaker.shut_until_s <= self.now_s + OPEN_S_MAX


TestBreakerMachine = BreakerMachine.TestCase
