"""A node's record: failures never help, payers are bounded, own money buys little, and old days are forgotten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.trust.lower_bound import UNIT
from sparewatt.trust.node_record import (
    HALF_LIFE_DAYS,
    PAYER_UNITS,
    PPM,
    WINDOW_DAYS,
    NodeRecord,
    RecordDay,
    TimedSpeed,
    completion_units,
    record_of,
)
from tests.unit.trust.rewards.eras import a_node

TODAY = 20_000
DAY = RecordDay(TODAY, 86_400, 86_400, 100 * UNIT, 0, 20, 0)
days = st.builds(
    RecordDay,
    st.integers(TODAY - 100, TODAY + 1),
    st.integers(0, 86_400),
    st.integers(0, 86_400),
    st.integers(0, 10**9),
    st.integers(0, 10**8),
    st.integers(0, 100),
    st.integers(0, 3),
)


def record(*of: RecordDay, speeds: tuple[TimedSpeed, ...] = ()) -> NodeRecord:
    return record_of(of, speeds, today=TODAY)


def test_a_newcomer_ranks_at_the_pessimistic_end() -> None:
    assert record().reputation_ppm < record(DAY).reputation_ppm // 5
    assert record().facet("completion").score_ppm == PPM // 2


def test_every_facet_has_its_own_counts() -> None:
    found = record(replace(DAY, up_s=43_200, bad_units=10 * UNIT, checks_failed=1))
    assert [facet.name for facet in found.facets] == ["availability", "completion", "correctness", "speed"]
    assert (found.facet("availability").good, found.facet("availability").bad) == (12 * UNIT, 12 * UNIT)
    assert (found.facet("completion").good, found.facet("completion").bad) == (100 * UNIT, 10 * UNIT)
    assert found.facet("correctness").bad == 20 * UNIT


def test_availability_is_no_part_of_the_reputation() -> None:
    assert record(DAY).reputation_ppm == record(replace(DAY, up_s=1)).reputation_ppm


def test_a_day_counts_half_after_two_weeks_and_nothing_after_the_window() -> None:
    old = record(replace(DAY, day=TODAY - HALF_LIFE_DAYS)).facet("completion").good
    assert abs(old - 50 * UNIT) < 10
    assert record(replace(DAY, day=TODAY - WINDOW_DAYS - 1)) == record()


@given(st.lists(days, max_size=10), st.integers(1, 10**8))
def test_one_more_failure_never_helps_and_one_more_success_never_harms(known: list[RecordDay], more: int) -> None:
    before = record(*known).reputation_ppm
    assert record(*known, RecordDay(TODAY, 0, 0, 0, more, 0, 0)).reputation_ppm <= before
    assert record(*known, RecordDay(TODAY, 0, 0, 0, 0, 0, 1)).reputation_ppm <= before
    assert record(*known, RecordDay(TODAY, 0, 0, more, 0, 0, 0)).reputation_ppm >= before


@given(st.lists(days, max_size=10))
def test_bounds_lie_below_the_score(known: list[RecordDay]) -> None:
    found = record(*known)
    assert all(0 <= facet.lower_ppm <= facet.score_ppm <= PPM for facet in found.facets)
    assert 0 <= found.reputation_ppm <= PPM


def test_a_node_that_is_half_as_fast_as_it_says_has_half_a_reputation() -> None:
    honest = record(DAY, speeds=(TimedSpeed("m", 10_000, 12_000, 40),))
    boasting = record(DAY, speeds=(TimedSpeed("m", 20_000, 10_000, 40),))
    assert honest.reputation_ppm == record(DAY).reputation_ppm
    assert abs(2 * boasting.reputation_ppm - honest.reputation_ppm) <= 2


# what an era adds


def test_a_free_job_counts_a_tenth_and_a_paid_one_up_to_a_whole() -> None:
    assert completion_units(a_node(payers_micro=[0], payers_done=[10])) == (UNIT, 0)
    assert completion_units(a_node(payers_micro=[900], payers_done=[10])) == (10 * UNIT, 0)
    assert completion_units(a_node(payers_micro=[10**9], payers_done=[10])) == (10 * UNIT, 0)


def test_one_payer_counts_so_much_and_no_more() -> None:
    good, _ = completion_units(a_node(payers_micro=[10**9], payers_done=[10**6]))
    assert good == PAYER_UNITS
    good, _ = completion_units(a_node(payers_micro=[10**9] * 4, payers_done=[10**6] * 4))
    assert good == 4 * PAYER_UNITS


def test_a_failure_counts_as_much_as_the_jobs_did() -> None:
    assert completion_units(a_node(payers_micro=[0], payers_done=[10], failed=2))[1] == 2 * UNIT // 10
    assert completion_units(a_node(payers_micro=[10**6], payers_done=[10], failed=2))[1] == 2 * UNIT
    assert completion_units(a_node(payers_micro=[], payers_done=[], failed=3))[1] == 3 * UNIT // 10


@given(st.integers(0, 10**6), st.integers(0, 10**9), st.integers(1, 50))
def test_a_second_account_moves_a_record_by_a_bounded_amount_and_washes_no_failure_away(
    jobs: int, paid: int, failed: int
) -> None:
    """The cheapest lie: the owner's other account sends so many jobs, and pays so much, as it likes."""
    honest = a_node(payers_micro=[900], payers_done=[10], failed=failed)
    lying = a_node(payers_micro=[900, paid], payers_done=[10, jobs], failed=failed)
    (good, bad), (more, worse) = completion_units(honest), completion_units(lying)
    assert more - good <= PAYER_UNITS
    assert 10 * worse >= bad


def test_what_many_eras_of_lying_are_worth_is_bounded_by_forgetting() -> None:
    """One account, every day for ever: as much as 21 days of it in full, and 100 of them do not become a thousand."""
    forever = [RecordDay(TODAY - ago, 0, 0, PAYER_UNITS, 0, 0, 0) for ago in range(WINDOW_DAYS + 1)]
    assert record(*forever).facet("completion").good <= 21 * PAYER_UNITS
