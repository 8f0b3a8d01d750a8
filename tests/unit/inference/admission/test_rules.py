from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import InvalidField
from sparewatt.inference.admission.model import Priority
from sparewatt.inference.admission.rules import (
    RETRY_S_MAX,
    RETRY_S_MIN,
    LaneShare,
    ahead_of,
    cost_tokens,
    is_shed,
    next_lane,
    priority_named,
    retry_after_s,
    shed_probability,
)

lanes = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 9000)), min_size=1, max_size=8)


def walked(deficits: list[int], costs: list[int], *, quantum: int, first_was_given: bool) -> LaneShare:
    """Deficit round robin as the textbook has it: visit, give, serve or go on."""
    have, quanta = list(deficits), [0] * len(costs)
    lane, was_given = 0, first_was_given
    while True:
        if not was_given:
            have[lane] += quantum
            quanta[lane] += 1
        if have[lane] >= costs[lane]:
            return LaneShare(lane, tuple(quanta))
        lane, was_given = (lane + 1) % len(costs), False


@given(found=lanes, quantum=st.integers(1, 2000), first_was_given=st.booleans())
def test_a_turn_that_is_reckoned_is_the_turn_that_is_walked(
    found: list[tuple[int, int]], quantum: int, *, first_was_given: bool
) -> None:
    deficits, costs = [lane[0] for lane in found], [lane[1] for lane in found]
    assert next_lane(deficits, costs, quantum=quantum, first_was_given=first_was_given) == walked(
        deficits, costs, quantum=quantum, first_was_given=first_was_given
    )


def test_a_job_of_any_size_gets_its_turn_at_once_when_alone() -> None:
    turn = next_lane([0], [1 << 40], quantum=1000, first_was_given=False)
    assert turn == LaneShare(0, (-(-(1 << 40) // 1000),))


def test_output_counts_twice() -> None:
    assert cost_tokens(500, 200) == 900
    assert cost_tokens(0, 0) == 1


@pytest.mark.parametrize("priority", Priority)
def test_a_priority_is_named_as_it_is_called(priority: Priority) -> None:
    assert priority_named(priority.value, param="x") is priority


@pytest.mark.parametrize("name", ["", "HIGH", "urgent", "x" * 1000, "normal "])
def test_any_other_name_is_refused_with_the_field_at_fault(name: str) -> None:
    with pytest.raises(InvalidField, match="high, normal, low") as caught:
        priority_named(name, param="x-header")
    assert caught.value.param == "x-header"


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_fuller_line_never_sheds_less(one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert 0 <= shed_probability(low) <= shed_probability(high) <= 1


@pytest.mark.parametrize(
    ("saturation", "least", "most"), [(0.0, 0, 0), (0.1, 0, 0.01), (0.2, 0.05, 0.15), (0.33, 1, 1)]
)
def test_shedding_sets_in_late_and_rises_fast(saturation: float, least: float, most: float) -> None:
    assert least <= shed_probability(saturation) <= most


def test_only_low_priority_is_shed() -> None:
    assert is_shed(Priority.LOW, saturation=0.25, chance=0.2)
    assert not is_shed(Priority.LOW, saturation=0.25, chance=0.4)
    assert not is_shed(Priority.NORMAL, saturation=1.0, chance=0.0)
    assert not is_shed(Priority.HIGH, saturation=1.0, chance=0.0)


@pytest.mark.parametrize(
    ("ahead", "others", "before"),
    [
        (0, [], 0),
        (3, [], 3),
        (0, [50], 1),
        (1, [50, 1], 4),
    ],
)
def test_a_job_comes_after_the_turns_of_others_not_after_all_they_have(
    ahead: int, others: list[int], before: int
) -> None:
    assert ahead_of(ahead, others) == before


@given(st.integers(1, 1000), st.floats(0, 1e6))
def test_coming_back_is_told_within_reason(position: int, pace_s: float) -> None:
    assert RETRY_S_MIN <= retry_after_s(position, pace_s=pace_s) <= RETRY_S_MAX
