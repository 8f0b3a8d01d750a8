"""Deadlines of many under one timer: who rings, when, and what is left afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.timer_queue import TIMER_QUEUE_FIRED_MAX, TIMER_QUEUE_INTERVAL_S, TimerQueue
from sparewatt.testing.clocks import ManualClock


class Ringing:
    """Implements Alarmed; keeps when it rang."""

    def __init__(self, clock: ManualClock, then: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._then = then
        self.rang_s: list[float] = []

    def on_deadline(self) -> None:
        self.rang_s.append(self._clock.now_s())
        self._then()


def some(clock: ManualClock, count: int) -> list[Ringing]:
    return [Ringing(clock) for _ in range(count)]


def test_a_lone_deadline_rings_once_at_its_moment_and_nothing_is_left() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, (one,) = TimerQueue(clock=clock), some(clock, 1)
    deadlines.set(one, 5.0)
    clock.advance(4.9)
    assert (one.rang_s, len(deadlines)) == ([], 1)
    clock.advance(100.0)
    assert (one.rang_s, len(deadlines), clock.pending) == ([5.0], 0, 0)


def test_a_deadline_that_is_taken_back_never_rings_and_its_timer_is_not_set_again() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, (one,) = TimerQueue(clock=clock), some(clock, 1)
    deadlines.set(one, 5.0)
    deadlines.cancel(one)
    deadlines.cancel(one)
    clock.advance(100.0)
    assert (one.rang_s, clock.pending) == ([], 0)


def test_many_deadlines_have_one_timer_which_is_not_touched_by_later_ones() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, many = TimerQueue(clock=clock), some(clock, 50)
    for number, each in enumerate(many):
        deadlines.set(each, 10.0 + number)
        assert clock.pending == 1
    clock.advance(100.0)
    assert [each.rang_s for each in many] == [[10.0 + number] for number in range(50)]


def test_a_deadline_that_is_set_anew_replaces_the_one_before() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, (one, other) = TimerQueue(clock=clock), some(clock, 2)
    deadlines.set(one, 5.0)
    deadlines.set(one, 8.0)
    deadlines.set(other, 8.0)
    deadlines.set(other, 3.0)
    clock.advance(100.0)
    assert (one.rang_s, other.rang_s) == ([8.0], [3.0])


def test_whoever_rings_may_take_back_or_put_off_the_others_and_set_its_own_again() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, (dropped, put_off) = TimerQueue(clock=clock), some(clock, 2)

    def then() -> None:
        deadlines.cancel(dropped)
        deadlines.set(put_off, 9.0)
        if len(first.rang_s) == 1:
            deadlines.set(first, 7.0)

    first = Ringing(clock, then)
    for each in (first, dropped, put_off):
        deadlines.set(each, 5.0)
    clock.advance(100.0)
    assert (first.rang_s, dropped.rang_s, put_off.rang_s) == ([5.0, 7.0], [], [9.0])


def test_more_than_a_turn_can_take_are_rung_in_turns_the_oldest_first() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, many = TimerQueue(clock=clock), some(clock, TIMER_QUEUE_FIRED_MAX + 1)
    for number, each in enumerate(many):
        deadlines.set(each, 5.0 - number * 1e-6)
    clock.advance(5.0)
    assert [len(each.rang_s) for each in many] == [0] + [1] * TIMER_QUEUE_FIRED_MAX
    clock.advance(TIMER_QUEUE_INTERVAL_S)
    assert len(many[0].rang_s) == 1


def test_an_error_in_one_does_not_silence_the_others() -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, (other,) = TimerQueue(clock=clock), some(clock, 1)

    def breaks() -> None:
        raise RuntimeError("it broke")

    deadlines.set(Ringing(clock, breaks), 4.0)
    deadlines.set(other, 4.0)
    with pytest.raises(RuntimeError):
        clock.advance(4.0)
    clock.advance(1.0)
    assert len(other.rang_s) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 3.0), st.floats(0.0, 1.0)), max_size=30))
def test_each_rings_when_its_own_timer_would_have_or_a_little_later(steps: list[tuple[int, float, float]]) -> None:
    clock = ManualClock(now_s=0.0)
    deadlines, many, due_s = TimerQueue(clock=clock), some(clock, 6), dict[int, float]()
    for who, delay_s, wait_s in steps:
        if who in due_s and many[who].rang_s == []:
            deadlines.cancel(many[who])
            del due_s[who]
        elif who not in due_s:
            due_s[who] = clock.now_s() + delay_s
            deadlines.set(many[who], due_s[who])
        clock.advance(wait_s)
    clock.advance(10.0)
    assert (len(deadlines), clock.pending) == (0, 0)
    for who, each in enumerate(many):
        late_s = [rang_s - due_s[who] for rang_s in each.rang_s]
        assert len(late_s) == (who in due_s)
        assert all(-1.1e-3 <= late <= TIMER_QUEUE_INTERVAL_S + 1e-6 for late in late_s)
