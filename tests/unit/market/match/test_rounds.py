"""Rounds: timeouts that grow, and the round that others have reached."""

from __future__ import annotations

import pytest

from sparewatt.market.match.rounds import Rounds

A, B, C, D = ("0x" + digit * 40 for digit in "abcd")
EQUAL = {A: 1, B: 1, C: 1, D: 1}


@pytest.mark.parametrize(("round_", "lasts_ms"), [(0, 300), (1, 600), (2, 1_200), (4, 4_800), (5, 4_800), (90, 4_800)])
def test_a_timeout_doubles_four_times(round_: int, lasts_ms: int) -> None:
    rounds = Rounds(EQUAL, round_ms=300)
    rounds.enter(round_, now_ms=50)
    assert (rounds.current, rounds.ends_ms) == (round_, 50 + lasts_ms)


def test_more_than_a_third_have_to_reach_a_round() -> None:
    rounds = Rounds(EQUAL, round_ms=300)
    assert rounds.highest() == 0
    rounds.note(A, 9)
    assert rounds.highest() == 0
    rounds.note(B, 4)
    assert rounds.highest() == 4
    rounds.note(C, 6)
    assert rounds.highest() == 6


def test_exactly_a_third_do_not_suffice() -> None:
    rounds = Rounds({A: 1, B: 1, C: 1}, round_ms=300)
    rounds.note(A, 5)
    assert rounds.highest() == 0


def test_an_old_message_takes_nobody_back() -> None:
    rounds = Rounds(EQUAL, round_ms=300)
    for round_ in (5, 2):
        rounds.note(A, round_)
        rounds.note(B, round_)
    assert rounds.highest() == 5


def test_after_a_restart_the_first_round_is_given() -> None:
    assert Rounds(EQUAL, round_ms=300, first=3).current == 3
