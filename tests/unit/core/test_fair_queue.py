"""Fair queueing: queued calls are made in later ticks, a few per tick, round robin over their owners."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.core.fair_queue import FAIR_QUEUE_TICK_S, TICK_BUDGET_S, FairQueue


class Loop:
    """An event loop whose ticks the test runs; every call takes `call_s` of the clock."""

    def __init__(self, *, at_once: int | None = None, call_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.called: list[str] = []
        self._call_s = call_s
        self._soon: list[Callable[[], None]] = []
        self.queue = FairQueue(self._soon.append, at_once=at_once, clock=lambda: self.now_s)

    def enqueue(self, *names: str) -> None:
        for name in names:
            self.queue.enqueue(name[0], lambda name=name: self._call(name))  # type: ignore[misc]

    def tick(self) -> list[str]:
        """Run one tick. Returns the names of the calls that it made."""
        before, soon = len(self.called), self._soon[:]
        self._soon.clear()
        for callback in soon:
            callback()
        return self.called[before:]

    def _call(self, name: str) -> None:
        self.now_s += self._call_s
        self.called.append(name)


def test_a_call_is_not_made_in_the_tick_that_enqueues_it() -> None:
    loop = Loop()
    was_empty = [loop.queue.is_empty]
    loop.enqueue("a1")
    was_empty.append(loop.queue.is_empty)
    assert loop.called == []
    assert [loop.tick(), loop.tick()] == [["a1"], []]
    assert [*was_empty, loop.queue.is_empty] == [True, False, True]


def test_a_tick_makes_calls_until_its_budget_is_used() -> None:
    loop = Loop(call_s=FAIR_QUEUE_TICK_S * 0.4)
    loop.enqueue(*(f"a{number}" for number in range(7)))
    assert [len(loop.tick()) for _ in range(4)] == [3, 3, 1, 0]


def test_each_tick_makes_at_least_one_call_however_slow() -> None:
    loop = Loop(call_s=10 * FAIR_QUEUE_TICK_S)
    loop.enqueue("a1", "b1")
    assert [loop.tick(), loop.tick()] == [["a1"], ["b1"]]


def test_a_tick_makes_at_most_at_once_calls() -> None:
    loop = Loop(at_once=2)
    loop.enqueue("a1", "a2", "a3")
    assert [loop.tick(), loop.tick()] == [["a1", "a2"], ["a3"]]


def test_a_late_owner_does_not_wait_for_all_calls_of_another() -> None:
    loop = Loop(at_once=1)
    loop.enqueue(*(f"a{number}" for number in range(100)), "b0", "b1")
    assert [loop.tick() for _ in range(5)] == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"]]


def test_calls_of_one_owner_are_first_in_first_out() -> None:
    loop = Loop()
    loop.enqueue("a1", "b1", "a2", "c1", "a3", "b2")
    assert loop.tick() == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_late_in_a_tick_work_must_wait_and_early_in_the_next_not() -> None:
    loop = Loop()
    assert not loop.queue.must_wait()
    loop.now_s += TICK_BUDGET_S
    assert not loop.queue.must_wait()
    loop.now_s += TICK_BUDGET_S
    assert loop.queue.must_wait()
    loop.tick()
    assert not loop.queue.must_wait()


def test_work_must_wait_while_other_work_is_queued() -> None:
    loop = Loop(at_once=1)
    loop.enqueue("a1", "a2")
    waits = [loop.queue.must_wait()]
    for _ in range(2):
        loop.tick()
        waits.append(loop.queue.must_wait())
    assert waits == [True, True, False]


def test_an_error_in_one_call_does_not_stop_the_queue() -> None:
    loop = Loop()

    def breaks() -> None:
        raise ValueError

    loop.queue.enqueue("a", breaks)
    loop.enqueue("b1")
    with pytest.raises(ValueError):  # noqa: PT011 (raised above)
        loop.tick()
    assert loop.tick() == ["b1"]


def test_a_call_enqueued_during_a_tick_is_made_too() -> None:
    loop = Loop(at_once=1)
    loop.queue.enqueue("a", lambda: loop.enqueue("b1"))
    loop.tick()
    assert loop.tick() == ["b1"]
    assert loop.queue.is_empty


def test_a_tick_has_one_number_and_the_next_another() -> None:
    loop = Loop()
    first = [loop.queue.tick_number() for _ in range(3)]
    loop.tick()
    second = loop.queue.tick_number()
    loop.tick()
    loop.tick()  # a tick without a call of `tick_number`
    assert first == [first[0]] * 3
    assert len({first[0], second, loop.queue.tick_number()}) == 3
