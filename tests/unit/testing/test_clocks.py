from __future__ import annotations

from sparewatt.testing.clocks import ManualClock


def test_time_passes_only_when_told() -> None:
    clock = ManualClock(now_s=5.0, unix_s=100.0)
    assert (clock.now_s(), clock.unix_s()) == (5.0, 100.0)
    clock.advance(2.5)
    assert (clock.now_s(), clock.unix_s()) == (7.5, 102.5)


def test_alarms_ring_in_the_order_they_are_due_each_at_its_time() -> None:
    clock = ManualClock(now_s=0.0)
    rung: list[tuple[str, float]] = []
    clock.call_later(3, lambda: rung.append(("late", clock.now_s())))
    clock.call_later(1, lambda: rung.append(("early", clock.now_s())))
    clock.call_later(9, lambda: rung.append(("never", clock.now_s())))
    clock.advance(3)
    assert rung == [("early", 1.0), ("late", 3.0)]
    assert clock.pending == 1


def test_a_cancelled_alarm_does_not_ring_and_may_be_cancelled_again() -> None:
    clock = ManualClock()
    rung: list[str] = []
    timer = clock.call_later(1, lambda: rung.append("ring"))
    timer.cancel()
    timer.cancel()
    clock.advance(2)
    assert (rung, clock.pending) == ([], 0)


def test_an_alarm_set_by_an_alarm_rings_within_the_same_step() -> None:
    clock = ManualClock(now_s=0.0)
    rung: list[float] = []

    def again() -> None:
        rung.append(clock.now_s())
        clock.call_later(1, again)

    clock.call_later(1, again)
    clock.advance(3)
    assert rung == [1.0, 2.0, 3.0]
