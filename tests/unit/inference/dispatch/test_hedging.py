"""The budget of hedges; races are tested with the run of a job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.dispatch.hedging import HEDGES_PER_REQUEST, HEDGES_SAVED_MAX, HedgeBudget


def test_nothing_is_saved_at_first() -> None:
    assert not HedgeBudget().take()


def test_fifty_requests_pay_for_one_hedge() -> None:
    budget = HedgeBudget()
    for _ in range(51):
        budget.note_request()
    assert budget.take()
    assert not budget.take()


def test_a_quiet_time_saves_up_a_few() -> None:
    budget = HedgeBudget()
    for _ in range(100_000):
        budget.note_request()
    assert sum(budget.take() for _ in range(100)) == HEDGES_SAVED_MAX


@given(st.lists(st.booleans(), max_size=2000))
def test_hedges_are_never_more_than_their_share_of_requests(wanted: list[bool]) -> None:
    budget, hedges = HedgeBudget(), 0
    for number, is_wanted in enumerate(wanted, start=1):
        budget.note_request()
        hedges += is_wanted and budget.take()
        assert hedges <= HEDGES_PER_REQUEST * number + 1e-6
