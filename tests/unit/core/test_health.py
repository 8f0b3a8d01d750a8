"""Causes of not being ready: when they count, when they no longer do, and that each change is passed on once."""

from __future__ import annotations

import pytest

from sparewatt.core.health import CLEAR_AFTER_S, HealthCause, HealthChange, HealthCode, HealthState

FULL = HealthCause(HealthCode.DISK_FULL, "The disk is full.", "/var/lib/x")
AWAY = HealthCause(HealthCode.DATABASE_UNAVAILABLE, "The database is away.")
HUNG = HealthCause(HealthCode.PROCESS_HUNG, "A process hangs.", "process 2")


class Watched(HealthState):
    def __init__(self) -> None:
        self.changes: list[HealthChange] = []
        super().__init__(on_change=self.changes.append)

    def told(self) -> list[tuple[str, bool]]:
        return [(change.cause.code.value, change.is_raised) for change in self.changes]


def test_nothing_found_is_ready() -> None:
    state = Watched()
    state.update([], now_s=0)
    assert (state.is_ready, state.causes, state.changes) == (True, (), [])


@pytest.mark.parametrize("cause", [FULL, HUNG])
def test_what_is_certain_counts_at_once_and_is_passed_on_once(cause: HealthCause) -> None:
    state = Watched()
    for tick in range(100):
        state.update([cause], now_s=tick / 4)
        assert state.causes == (cause,)
        assert not state.is_ready
    assert state.told() == [(cause.code.value, True)]


def test_a_database_counts_as_away_only_after_a_while() -> None:
    state = Watched()
    for now_s in (0.0, 0.5, 1.0, 1.49):
        state.update([AWAY], now_s=now_s)
        assert state.is_ready
    state.update([AWAY], now_s=1.5)
    assert state.causes == (AWAY,)


def test_a_database_that_answers_in_between_starts_the_time_anew() -> None:
    state = Watched()
    for now_s in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        state.update([] if now_s == 1.0 else [AWAY], now_s=now_s)
    assert state.causes == (AWAY,)
    assert state.is_ready is False
    state = Watched()
    for now_s in (0.0, 0.5, 1.0, 1.5, 2.0):
        state.update([] if now_s == 1.0 else [AWAY], now_s=now_s)
    assert state.is_ready


def test_a_cause_that_comes_and_goes_within_a_second_is_one_change() -> None:
    """A disk at its limit: room for a moment, and none again."""
    state = Watched()
    for tick in range(40):
        state.update([FULL] if tick % 3 == 0 else [], now_s=tick / 4)
    assert state.told() == [("disk_full", True)]
    assert not state.is_ready


def test_a_cause_ends_when_it_was_not_seen_for_long_enough() -> None:
    state = Watched()
    state.update([FULL], now_s=10.0)
    state.update([FULL], now_s=12.0)
    told = []
    for after_s in (CLEAR_AFTER_S - 0.01, CLEAR_AFTER_S):
        state.update([], now_s=12.0 + after_s)
        told.append(state.is_ready)
    assert told == [False, True]
    assert state.told() == [("disk_full", True), ("disk_full", False)]
    assert state.changes[1].lasted_s == 2.0 + CLEAR_AFTER_S


def test_it_is_ready_again_only_when_the_last_cause_is_gone() -> None:
    state = Watched()
    state.update([FULL, HUNG], now_s=0)
    state.update([HUNG], now_s=1)
    assert state.causes == (HUNG,)
    state.update([], now_s=2)
    assert state.is_ready


def test_causes_are_shown_in_the_order_of_their_codes_with_their_last_words() -> None:
    state = Watched()
    other = HealthCause(HealthCode.DISK_FULL, "Still full.", "/elsewhere")
    state.update([HUNG, FULL], now_s=0)
    state.update([HUNG, other], now_s=0.5)
    assert state.causes == (other, HUNG)
    assert state.told() == [("process_hung", True), ("disk_full", True)]
