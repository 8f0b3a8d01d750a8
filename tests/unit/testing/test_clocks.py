from __future__ import annotations

from sparewatt.testing.clocks import ManualClock


def test_time_passes_only_in_advance() -> None:
    clock = ManualClock(now_s=5.0, unix_s=100.0)
    assert (clock.now_s(), clock.unix_s()) == (5.0, 100.0)
    clock.advance(2.5)
    assert (clock.now_s(), clock.unix_s()) == (7.5, 102.5)


def test_timers_fire_in_the_order_they_are_due_each_at_its_time() -> None:
    clock = ManualClock(now_s=0.0)
    fired: list[tuple[str, float]] = []
    clock.call_later(3, lambda: fired.append(("late", clock.now_s())))
    clock.call_later(1, lambda: fired.append(("early", clock.now_s())))
    clock.call_later(9, lambda: fired.append(("never", clock.now_s())))
    clock.advance(3)
    assert fired == [("early", 1.0), ("late", 3.0)]
    assert clock.pending == 1


def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again() -> None:
    clock = ManualClock()
    fired: list[str] = []
    timer = clock.call_later(1, lambda: fired.append("timer"))
    timer.cancel()
    timer.cancel()
    clock.advance(2)
    assert (fired, clock.pending) == ([], 0)


def test_a_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = ManualClock(now_s=0.0)
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.now_s())
        clock.call_later(1, again)

    clock.call_later(1, again)
    clock.advance(3)
    assert fired == [1.0, 2.0, 3.0]
