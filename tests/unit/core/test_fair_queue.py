"""Who stands in line is served in later turns, a little in each, by all in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.core.fair_queue import FAIR_QUEUE_TICK_S, TICK_BUDGET_S, FairQueue


class Loop:
    """Turns are taken when it is told to; every call takes some of the time of one."""

    def __init__(self, *, at_once: int | None = None, call_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.called: list[str] = []
        self._call_s = call_s
        self._soon: list[Callable[[], None]] = []
        self.line = FairQueue(self._soon.append, at_once=at_once, clock=lambda: self.now_s)

    def wait(self, *names: str) -> None:
        for name in names:
            self.line.enqueue(name[0], lambda name=name: self._call(name))  # type: ignore[misc]

    def turn(self) -> list[str]:
        """What was called in it."""
        before, soon = len(self.called), self._soon[:]
        self._soon.clear()
        for callback in soon:
            callback()
        return self.called[before:]

    def _call(self, name: str) -> None:
        self.now_s += self._call_s
        self.called.append(name)


def test_nobody_is_called_in_the_turn_in_which_they_come() -> None:
    loop = Loop()
    was_empty = [loop.line.is_empty]
    loop.wait("a1")
    was_empty.append(loop.line.is_empty)
    assert loop.called == []
    assert [loop.turn(), loop.turn()] == [["a1"], []]
    assert [*was_empty, loop.line.is_empty] == [True, False, True]


def test_a_turn_does_as_much_as_it_has_time_for() -> None:
    loop = Loop(call_s=FAIR_QUEUE_TICK_S * 0.4)
    loop.wait(*(f"a{number}" for number in range(7)))
    assert [len(loop.turn()) for _ in range(4)] == [3, 3, 1, 0]


def test_something_is_done_in_each_however_long_it_takes() -> None:
    loop = Loop(call_s=10 * FAIR_QUEUE_TICK_S)
    loop.wait("a1", "b1")
    assert [loop.turn(), loop.turn()] == [["a1"], ["b1"]]


def test_no_more_are_called_at_once_than_may_be() -> None:
    loop = Loop(at_once=2)
    loop.wait("a1", "a2", "a3")
    assert [loop.turn(), loop.turn()] == [["a1", "a2"], ["a3"]]


def test_one_who_comes_last_does_not_wait_for_the_many_of_another() -> None:
    loop = Loop(at_once=1)
    loop.wait(*(f"a{number}" for number in range(100)), "b0", "b1")
    assert [loop.turn() for _ in range(5)] == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"]]


def test_those_of_one_go_in_the_order_they_came() -> None:
    loop = Loop()
    loop.wait("a1", "b1", "a2", "c1", "a3", "b2")
    assert loop.turn() == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_who_comes_late_in_a_turn_must_wait_and_early_in_the_next_not() -> None:
    loop = Loop()
    assert not loop.line.must_wait()
    loop.now_s += TICK_BUDGET_S
    assert not loop.line.must_wait()
    loop.now_s += TICK_BUDGET_S
    assert loop.line.must_wait()
    loop.turn()
    assert not loop.line.must_wait()


def test_who_comes_when_others_wait_must_wait() -> None:
    loop = Loop(at_once=1)
    loop.wait("a1", "a2")
    waits = [loop.line.must_wait()]
    for _ in range(2):
        loop.turn()
        waits.append(loop.line.must_wait())
    assert waits == [True, True, False]


def test_one_that_breaks_holds_nobody_up() -> None:
    loop = Loop()

    def breaks() -> None:
        raise ValueError

    loop.line.enqueue("a", breaks)
    loop.wait("b1")
    with pytest.raises(ValueError):  # noqa: PT011 (raised above)
        loop.turn()
    assert loop.turn() == ["b1"]


def test_who_comes_while_others_are_called_is_called_as_well() -> None:
    loop = Loop(at_once=1)
    loop.line.enqueue("a", lambda: loop.wait("b1"))
    loop.turn()
    assert loop.turn() == ["b1"]
    assert loop.line.is_empty


def test_a_turn_has_one_number_and_the_next_another() -> None:
    loop = Loop()
    first = [loop.line.tick_number() for _ in range(3)]
    loop.turn()
    second = loop.line.tick_number()
    loop.turn()
    loop.turn()  # in which nobody asked
    assert first == [first[0]] * 3
    assert len({first[0], second, loop.line.tick_number()}) == 3
