"""What one observation may teach, and how lessons add up and fade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.matcher.lessons import LEARN_AT_LEAST, LESSON_MAX, SLOWER_LOG_MAX, Lessons

FASTER_MAX = 2.0


def taught(*ratios: float, faster_max: float = FASTER_MAX) -> Lessons:
    """After observations that took so many times longer than the figures say."""
    lessons = Lessons()
    for ratio in ratios:
        lessons.add(observed=ratio, predicted=1.0, faster_max=faster_max)
    return lessons


def test_without_a_lesson_a_node_is_as_it_says() -> None:
    assert (Lessons().factor, Lessons().count) == (1.0, 0)


def test_the_first_lesson_counts_half_and_later_ones_less() -> None:
    assert taught(math.e).factor == pytest.approx(math.exp(1 / 2))
    assert taught(math.e, math.e).factor == pytest.approx(math.exp(2 / 3))
    assert taught(math.e, math.e, math.e).factor == pytest.approx(math.exp(3 / 4))


def test_a_lesson_never_counts_less_than_its_least_share() -> None:
    many = taught(*[1.0] * 100)
    many.add(observed=math.e, predicted=1.0, faster_max=FASTER_MAX)
    assert many.factor == pytest.approx(math.exp(LEARN_AT_LEAST))


@pytest.mark.parametrize("ratio", [0.6, 1.0, 3.0, 1000.0])
def test_what_is_always_seen_is_believed_in_the_end(ratio: float) -> None:
    assert taught(*[ratio] * 200).factor == pytest.approx(ratio, rel=0.01)


def test_a_slow_spell_is_forgotten_but_not_at_once() -> None:
    slow = taught(*[4.0] * 50)
    slow.add(observed=1.0, predicted=1.0, faster_max=FASTER_MAX)
    assert slow.factor > 3.0
    for _ in range(100):
        slow.add(observed=1.0, predicted=1.0, faster_max=FASTER_MAX)
    assert slow.factor == pytest.approx(1.0, rel=0.01)


def test_a_node_may_be_raised_but_not_beyond_what_its_card_can_do() -> None:
    assert taught(0.8, 0.8, 0.8).factor < 1.0
    assert taught(*[1e-9] * 100).factor == pytest.approx(1 / FASTER_MAX)
    assert taught(*[1e-9] * 100, faster_max=1.0).factor == 1.0


def test_one_absurd_observation_moves_the_figure_by_a_bounded_step() -> None:
    steady = taught(*[1.0] * 30)
    steady.add(observed=1e9, predicted=1e-9, faster_max=FASTER_MAX)
    assert steady.factor == pytest.approx(math.exp(LESSON_MAX * LEARN_AT_LEAST))
    assert taught(1e-300).factor == 1 / FASTER_MAX


@pytest.mark.parametrize(
    ("predicted", "observed"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.nan)]
)
def test_an_observation_that_cannot_be_teaches_nothing(predicted: float, observed: float) -> None:
    lessons = taught(2.0)
    before = lessons.factor, lessons.count
    lessons.add(observed=observed, predicted=predicted, faster_max=FASTER_MAX)
    assert (lessons.factor, lessons.count) == before


times = st.floats(min_value=0.0, max_value=1e300)


@given(st.lists(st.tuples(times, times), max_size=60), st.floats(1.0, 100.0))
def test_whatever_is_seen_the_factor_stays_within_its_bounds(
    seen: list[tuple[float, float]], faster_max: float
) -> None:
    lessons = Lessons()
    for observed, predicted in seen:
        lessons.add(observed=observed, predicted=predicted, faster_max=faster_max)
        assert 1 / faster_max * (1 - 1e-9) <= lessons.factor <= math.exp(SLOWER_LOG_MAX) * (1 + 1e-9)
