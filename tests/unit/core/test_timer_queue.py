"""Many deadlines on one timer: which fire, when, and which timers are left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.timer_queue import TIMER_QUEUE_FIRED_MAX, TIMER_QUEUE_INTERVAL_S, TimerQueue
from sparewatt.testing.clocks import ManualClock


class RecordingHandler:
    """A DeadlineHandler that records when it was called."""

    def __init__(self, clock: ManualClock, then: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._then = then
        self.fired_at_s: list[float] = []

    def on_deadline(self) -> None:
        self.fired_at_s.append(self._clock.now_s())
        self._then()


def handlers(clock: ManualClock, count: int) -> list[RecordingHandler]:
    return [RecordingHandler(clock) for _ in range(count)]


def test_a_single_deadline_fires_once_when_due_and_leaves_no_timer() -> None:
    clock = ManualClock(now_s=0.0)
    queue, (one,) = TimerQueue(clock=clock), handlers(clock, 1)
    queue.set(one, 5.0)
    clock.advance(4.9)
    assert (one.fired_at_s, len(queue)) == ([], 1)
    clock.advance(100.0)
    assert (one.fired_at_s, len(queue), clock.pending) == ([5.0], 0, 0)


def test_a_cancelled_deadline_never_fires_and_its_timer_is_not_armed_again() -> None:
    clock = ManualClock(now_s=0.0)
    queue, (one,) = TimerQueue(clock=clock), handlers(clock, 1)
    queue.set(one, 5.0)
    queue.cancel(one)
    queue.cancel(one)
    clock.advance(100.0)
    assert (one.fired_at_s, clock.pending) == ([], 0)


def test_many_deadlines_share_one_timer_which_later_ones_do_not_rearm() -> None:
    clock = ManualClock(now_s=0.0)
    queue, many = TimerQueue(clock=clock), handlers(clock, 50)
    for number, each in enumerate(many):
        queue.set(each, 10.0 + number)
        assert clock.pending == 1
    clock.advance(100.0)
    assert [each.fired_at_s for each in many] == [[10.0 + number] for number in range(50)]


def test_setting_a_deadline_again_replaces_it() -> None:
    clock = ManualClock(now_s=0.0)
    queue, (one, other) = TimerQueue(clock=clock), handlers(clock, 2)
    queue.set(one, 5.0)
    queue.set(one, 8.0)
    queue.set(other, 8.0)
    queue.set(other, 3.0)
    clock.advance(100.0)
    assert (one.fired_at_s, other.fired_at_s) == ([8.0], [3.0])


def test_a_handler_may_cancel_or_postpone_other_deadlines_and_set_its_own_again() -> None:
    clock = ManualClock(now_s=0.0)
    queue, (dropped, put_off) = TimerQueue(clock=clock), handlers(clock, 2)

    def then() -> None:
        queue.cancel(dropped)
        queue.set(put_off, 9.0)
        if len(first.fired_at_s) == 1:
            queue.set(first, 7.0)

    first = RecordingHandler(clock, then)
    for each in (first, dropped, put_off):
        queue.set(each, 5.0)
    clock.advance(100.0)
    assert (first.fired_at_s, dropped.fired_at_s, put_off.fired_at_s) == ([5.0, 7.0], [], [9.0])


def test_more_deadlines_than_a_tick_may_fire_are_spread_over_ticks_oldest_first() -> None:
    clock = ManualClock(now_s=0.0)
    queue, many = TimerQueue(clock=clock), handlers(clock, TIMER_QUEUE_FIRED_MAX + 1)
    for number, each in enumerate(many):
        queue.set(each, 5.0 - number * 1e-6)
    clock.advance(5.0)
    assert [len(each.fired_at_s) for each in many] == [0] + [1] * TIMER_QUEUE_FIRED_MAX
    clock.advance(TIMER_QUEUE_INTERVAL_S)
    assert len(many[0].fired_at_s) == 1


def test_an_error_in_one_handler_does_not_stop_the_others() -> None:
    clock = ManualClock(now_s=0.0)
    queue, (other,) = TimerQueue(clock=clock), handlers(clock, 1)

    def breaks() -> None:
        raise RuntimeError("it broke")

    queue.set(RecordingHandler(clock, breaks), 4.0)
    queue.set(other, 4.0)
    with pytest.raises(RuntimeError):
        clock.advance(4.0)
    clock.advance(1.0)
    assert len(other.fired_at_s) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 3.0), st.floats(0.0, 1.0)), max_size=30))
def test_each_deadline_fires_when_due_or_at_most_an_interval_later(steps: list[tuple[int, float, float]]) -> None:
    clock = ManualClock(now_s=0.0)
    queue, many, due_s = TimerQueue(clock=clock), handlers(clock, 6), dict[int, float]()
    for index, delay_s, wait_s in steps:
        if index in due_s and many[index].fired_at_s == []:
            queue.cancel(many[index])
            del due_s[index]
        elif index not in due_s:
            due_s[index] = clock.now_s() + delay_s
            queue.set(many[index], due_s[index])
        clock.advance(wait_s)
    clock.advance(10.0)
    assert (len(queue), clock.pending) == (0, 0)
    for index, each in enumerate(many):
        late_s = [fired_at_s - due_s[index] for fired_at_s in each.fired_at_s]
        assert len(late_s) == (index in due_s)
        assert all(-1.1e-3 <= late <= TIMER_QUEUE_INTERVAL_S + 1e-6 for late in late_s)
