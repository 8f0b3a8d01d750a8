"""What one observation may teach, and how lessons add up and fade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.lessons import ENOUGH, KEPT, LESSON_MAX, SLOWER_MAX, Lessons

FASTER_MAX = 2.0


def taught(*ratios: float, faster_max: float = FASTER_MAX) -> Lessons:
    """After observations that took so many times longer than the figures say."""
    lessons = Lessons()
    for ratio in ratios:
        lessons.add(observed=ratio, predicted=1.0, faster_max=faster_max)
    return lessons


def test_without_a_lesson_a_node_is_as_it_says() -> None:
    assert (Lessons().factor, Lessons().count) == (1.0, 0)


def test_the_first_lesson_is_weighed_against_the_figures() -> None:
    assert taught(3.0).factor == pytest.approx((KEPT + 3.0) / (KEPT + 1.0))
    assert taught(3.0, 3.0).factor == pytest.approx((KEPT * (KEPT + 3.0) + 3.0) / (KEPT * (KEPT + 1.0) + 1.0))
    assert 1.0 < taught(3.0).factor < taught(3.0, 3.0).factor < 3.0


def test_only_the_sum_of_what_is_seen_counts() -> None:
    """Of two prompts in one chunk the first seems to take twice as long, and the second no time at all."""
    lessons = taught(*[2.0, 0.0] * 100)
    assert lessons.factor == pytest.approx(1.0, abs=1 - KEPT)


def test_a_long_observation_counts_more_than_a_short_one() -> None:
    lessons = taught(*[1.0] * 50)
    lessons.add(observed=300.0, predicted=100.0, faster_max=FASTER_MAX)
    assert lessons.factor > 2.5
    briefly = taught(*[1.0] * 50)
    briefly.add(observed=0.03, predicted=0.01, faster_max=FASTER_MAX)
    assert briefly.factor < 1.01


@pytest.mark.parametrize("ratio", [0.6, 1.0, 3.0, 1000.0])
def test_what_is_always_seen_is_believed_in_the_end(ratio: float) -> None:
    assert taught(*[ratio] * 200).factor == pytest.approx(ratio, rel=0.01)


def test_a_slow_spell_is_forgotten_but_not_at_once() -> None:
    slow = taught(*[4.0] * 50)
    slow.add(observed=1.0, predicted=1.0, faster_max=FASTER_MAX)
    assert slow.factor > 3.5
    for _ in range(100):
        slow.add(observed=1.0, predicted=1.0, faster_max=FASTER_MAX)
    assert slow.factor == pytest.approx(1.0, rel=0.01)


def test_a_node_may_be_raised_but_not_beyond_what_its_card_can_do() -> None:
    assert taught(0.8, 0.8, 0.8).factor < 1.0
    assert taught(*[1e-9] * 100).factor == 1 / FASTER_MAX
    assert taught(*[1e-9] * 100, faster_max=1.0).factor == 1.0


def test_one_absurd_observation_moves_the_figure_by_a_bounded_step() -> None:
    steady = taught(*[1.0] * 100)
    steady.add(observed=1e300, predicted=1.0, faster_max=FASTER_MAX)
    assert steady.factor == pytest.approx(1.0 + (LESSON_MAX - 1.0) * (1 - KEPT), rel=0.01)
    assert taught(math.inf).factor <= LESSON_MAX


def test_a_lie_of_any_size_is_found_out_in_a_few_lessons() -> None:
    found = taught(*[1e6] * 12)
    assert found.factor > 1e5


@pytest.mark.parametrize(
    ("predicted", "observed"),
    [(0.0, 1.0), (1e-300, 1.0), (math.inf, 1.0), (-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.nan)],
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
        assert 1 / faster_max * (1 - 1e-9) <= lessons.factor <= SLOWER_MAX


# a stranger's figures


def test_from_the_third_lesson_on_the_figures_no_longer_count() -> None:
    lessons = Lessons()
    for _ in range(ENOUGH):
        lessons.add(observed=10.0, predicted=1.0, faster_max=4.0)
    assert lessons.factor == pytest.approx(10.0)


def test_a_lesson_is_bounded_by_what_is_believed_at_the_least() -> None:
    """Figures a million times too good do not make the truth look like an outlier."""
    lessons = Lessons()
    for _ in range(ENOUGH):
        lessons.add(observed=1.0, predicted=1e-6, faster_max=1.0, least=1e6)
    assert lessons.factor == pytest.approx(1e6)


@pytest.mark.parametrize("by", [10.0, 0.1])
def test_better_figures_leave_what_was_learned(by: float) -> None:
    lessons = Lessons()
    for _ in range(10):
        lessons.add(observed=2.0, predicted=1.0, faster_max=100.0)
    lessons.scale(by)
    assert lessons.factor == pytest.approx(2.0 * by, rel=0.05)
    lessons.add(observed=2.0, predicted=1.0 / by, faster_max=100.0)
    assert lessons.factor == pytest.approx(2.0 * by, rel=0.05)


@pytest.mark.parametrize("count", [0, 3, 1000])
def test_lessons_are_taken_up_again(count: int) -> None:
    lessons = Lessons.restored(factor=3.0, count=count, amount=0.5)
    assert (lessons.factor, lessons.count) == (3.0, count)
    for _ in range(200):
        lessons.add(observed=1.0, predicted=1.0, faster_max=4.0)
    assert lessons.factor == pytest.approx(1.0, abs=0.01), "a restored lesson fades as others do"


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e300, float("inf")])
def test_no_restored_factor_is_impossible(factor: float) -> None:
    assert 1.0 / SLOWER_MAX <= Lessons.restored(factor=factor, count=5, amount=1.0).factor <= SLOWER_MAX
