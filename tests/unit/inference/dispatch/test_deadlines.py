"""Deadlines follow the prediction: early where another node can help, patient where none can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.dispatch.deadlines import deadlines, silence_s
from sparewatt.inference.dispatch.model import DispatchRules

RULES = DispatchRules()
FLOOR_S = RULES.first_token_floor_s


@pytest.mark.parametrize(
    ("predicted_s", "marks"),
    [(0.0, (1.0, 2.0, 30.0)), (0.1, (1.0, 2.0, 30.0)), (0.6, (1.2, 2.4, 30.0)), (20.0, (40.0, 80.0, 80.0))],
)
def test_marks_are_multiples_of_the_prediction_with_a_least(predicted_s: float, marks: tuple[float, ...]) -> None:
    assert deadlines(RULES, predicted_s=predicted_s, floor_s=FLOOR_S) == pytest.approx(marks)


def test_a_poor_prediction_is_held_against_what_others_took() -> None:
    assert deadlines(RULES, predicted_s=5.0, floor_s=FLOOR_S, p99_s=1.5).miss_s == 3.0
    assert deadlines(RULES, predicted_s=5.0, floor_s=FLOOR_S, p99_s=0.1).miss_s == 2.0
    assert deadlines(RULES, predicted_s=0.6, floor_s=FLOOR_S, p99_s=60.0).miss_s == pytest.approx(2.4)


def test_a_reply_in_one_piece_is_waited_for_as_long_as_it_may_take() -> None:
    marks = deadlines(RULES, predicted_s=0.6, floor_s=120.0, finish_s=200.0)
    assert marks.miss_s == pytest.approx(2.4)
    assert marks.patience_s == 800.0


@given(st.floats(0, 1e6), st.floats(0.5, 200), st.none() | st.floats(0, 1e3))
def test_the_marks_come_in_order(predicted_s: float, floor_s: float, p99_s: float | None) -> None:
    marks = deadlines(RULES, predicted_s=predicted_s, floor_s=floor_s, p99_s=p99_s)
    assert marks.hedge_s > 0
    assert marks.miss_s <= marks.patience_s


def silence(*, step_s: float = 0.02, longest_pause_s: float = 0.0, prompts_s: float = 0.0) -> float:
    return silence_s(RULES, step_s=step_s, longest_pause_s=longest_pause_s, prompts_s=prompts_s)


def test_a_fast_node_that_stalls_costs_less_than_three_seconds() -> None:
    assert silence() == 2.5


def test_a_node_of_half_a_token_a_second_is_not_cut() -> None:
    assert silence(step_s=2.0) == 16.0


def test_a_pause_of_its_own_earns_a_node_more_up_to_a_ceiling() -> None:
    assert silence(longest_pause_s=1.0) == 8.0
    assert silence(longest_pause_s=9.0) == RULES.stall_ceiling_s


def test_prompts_that_were_sent_to_the_node_stall_its_answers() -> None:
    assert silence(prompts_s=4.0) == 6.5
    assert silence(prompts_s=1e6) == RULES.stall_ceiling_s


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_nothing_is_waited_for_longer_than_the_idle_time(step_s: float, pause_s: float, prompts_s: float) -> None:
    found = silence(step_s=step_s, longest_pause_s=pause_s, prompts_s=prompts_s)
    assert RULES.stall_floor_s <= found <= RULES.idle_s
