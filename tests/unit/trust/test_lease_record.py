"""The record of leases: deterministic, slow to gain, and not worth faking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.trust import reputation
from sparewatt.trust.lease_record import (
    DAY_S,
    EARLY_KEPT,
    FAILED_KEPT,
    HALF_LIFE_DAYS,
    NEWCOMER_REPUTATION_PPM,
    NEWCOMER_UPTIME_PPM,
    SERVED_KEPT,
    EndedTerm,
    TermResult,
    keep_term,
    lease_reputation_ppm,
    lower_bound_ppm,
)
from sparewatt.trust.lower_bound import UNIT

NOW_S = 20_000 * DAY_S + 500
DOLLAR_UUSD = 1_000_000
FAILURES = (TermResult.NO_START, TermResult.DOWN, TermResult.RESIGNED, TermResult.UNBONDED)


def term(
    result: TermResult = TermResult.SERVED,
    *,
    renter: str = "r",
    hours: int = 1,
    earned_uusd: int = DOLLAR_UUSD,
    days_ago: int = 0,
) -> EndedTerm:
    return EndedTerm(renter, result, 3_600 * hours, earned_uusd, NOW_S - days_ago * DAY_S)


def failure(result: TermResult = TermResult.DOWN, **changes: int) -> EndedTerm:
    return term(result, renter=f"f{changes}", hours=0, earned_uusd=0, **changes)


def of(*terms: EndedTerm) -> int:
    return lease_reputation_ppm(terms, unix_s=NOW_S)


def a_month(count: int = 30) -> list[EndedTerm]:
    """A lease a day, each of another renter."""
    return [term(renter=f"r{day}", days_ago=day) for day in range(count)]


def test_a_newcomer_has_the_prior() -> None:
    assert of() == NEWCOMER_REPUTATION_PPM == 435_283
    assert NEWCOMER_UPTIME_PPM < 1_000_000


def test_what_was_served_raises_and_every_failure_lowers() -> None:
    assert of(term()) > of()
    for result in FAILURES:
        assert of(failure(result)) == 347_007
        assert of(*a_month(), failure(result)) < of(*a_month())


def test_the_bound_is_wilsons_as_for_jobs() -> None:
    for served, failed in ((0, 0), (5, 0), (5, 3), (100, 1), (0, 20)):
        exact = reputation.lower_bound(served + 3.0, float(failed))
        assert abs(lower_bound_ppm(served * UNIT, failed * UNIT) - 1_000_000 * exact) <= 2


def test_a_unit_takes_an_hour_and_a_dollar() -> None:
    whole = of(term())
    assert of(term(hours=1, earned_uusd=500 * DOLLAR_UUSD)) == whole, "a high price does not shorten the time"
    assert of(term(hours=500, earned_uusd=DOLLAR_UUSD)) == whole, "a long time does not replace the pay"
    assert of(term(hours=2, earned_uusd=2 * DOLLAR_UUSD)) > whole


def test_many_tiny_leases_with_oneself_count_as_little_as_they_cost() -> None:
    tiny = [EndedTerm("me", TermResult.SERVED, 60, 17, NOW_S) for _ in range(SERVED_KEPT)]
    assert of(*tiny) - of() < 1_000


def test_one_renter_counts_three_units_at_most_whatever_it_rents() -> None:
    days = [term(renter="me", hours=24, earned_uusd=100 * DOLLAR_UUSD, days_ago=day) for day in range(60)]
    assert of(*days) <= lower_bound_ppm(3 * UNIT, 0)


def test_one_day_counts_four_units_at_most_however_many_renters_one_makes_up() -> None:
    today = [term(renter=f"me{number}", hours=5, earned_uusd=9 * DOLLAR_UUSD) for number in range(200)]
    assert lower_bound_ppm(3 * UNIT, 0) < of(*today) <= lower_bound_ppm(4 * UNIT, 0)


def test_a_lost_lease_costs_a_whole_unit_however_small_it_was() -> None:
    assert of(term(hours=8, earned_uusd=9 * DOLLAR_UUSD), failure()) < of(term(hours=8, earned_uusd=9 * DOLLAR_UUSD))


def test_what_a_failed_term_served_before_counts_too() -> None:
    assert of(term(TermResult.DOWN, hours=3, earned_uusd=3 * DOLLAR_UUSD)) > of(failure())


def test_a_renter_that_leaves_at_once_counts_a_quarter_and_once() -> None:
    once = of(term(TermResult.LEFT_EARLY))
    assert of(failure()) < once < of()
    assert of(*[term(TermResult.LEFT_EARLY)] * 20) == once, "one renter cannot harm by repeating it"
    assert of(term(TermResult.LEFT_EARLY, renter="a"), term(TermResult.LEFT_EARLY, renter="b")) < once


def test_a_term_that_was_left_at_once_serves_nothing() -> None:
    assert of(term(TermResult.LEFT_EARLY, hours=3)) == of(term(TermResult.LEFT_EARLY, hours=0))


def test_with_five_units_of_its_own_three_failures_are_better_than_a_new_identity() -> None:
    earned = [term(renter=f"r{number}") for number in range(4)] + [term(renter="r4", days_ago=1)]
    failures = [failure(days_ago=1) for _ in range(4)]
    assert of(*earned, *failures[:3]) > NEWCOMER_REPUTATION_PPM
    assert of(*earned, *failures) < NEWCOMER_REPUTATION_PPM


def test_a_day_weighs_half_after_the_half_life_and_nothing_after_eight() -> None:
    fresh = lower_bound_ppm(UNIT, 0)
    half = of(term(days_ago=HALF_LIFE_DAYS))
    assert of(term()) == fresh
    assert abs(half - lower_bound_ppm(UNIT // 2, 0)) <= 1
    assert of(term(days_ago=8 * HALF_LIFE_DAYS + 1)) == NEWCOMER_REPUTATION_PPM
    assert of(failure(days_ago=8 * HALF_LIFE_DAYS + 1)) == NEWCOMER_REPUTATION_PPM


def test_a_term_after_the_block_it_is_judged_at_counts_as_of_today() -> None:
    assert of(term(days_ago=-3)) == of(term())


@given(st.lists(st.builds(term, st.sampled_from(list(TermResult)), renter=st.sampled_from("abc"),
                          hours=st.integers(0, 100), earned_uusd=st.integers(0, 10**8),
                          days_ago=st.integers(0, 300)), max_size=20), st.randoms())  # fmt: skip
def test_the_number_depends_on_the_terms_and_not_on_their_order(terms: list[EndedTerm], random: object) -> None:
    shuffled = list(terms)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = lease_reputation_ppm(shuffled, unix_s=NOW_S)
    assert found == lease_reputation_ppm(terms, unix_s=NOW_S)
    assert isinstance(found, int)
    assert 0 <= found <= 1_000_000


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1_000, 10**9))
def test_one_more_failure_never_raises_and_one_more_success_never_lowers(served: int, failed: int, more: int) -> None:
    now = lower_bound_ppm(served, failed)
    assert lower_bound_ppm(served, failed + more) <= now <= lower_bound_ppm(served + more, failed)


def test_a_flood_of_leases_does_not_push_a_failure_out_of_the_record() -> None:
    terms: tuple[EndedTerm, ...] = (failure(),)
    for number in range(SERVED_KEPT + 10):
        terms = keep_term(terms, term(renter=str(number)))
    for number in range(EARLY_KEPT + 10):
        terms = keep_term(terms, term(TermResult.LEFT_EARLY, renter=str(number)))
    assert terms[0] == failure()
    assert len(terms) == 1 + SERVED_KEPT + EARLY_KEPT
    assert terms[1].renter == "10", "the oldest went first"


@pytest.mark.parametrize("result", FAILURES)
def test_failures_are_bounded_too(result: TermResult) -> None:
    terms: tuple[EndedTerm, ...] = ()
    for _ in range(FAILED_KEPT + 5):
        terms = keep_term(terms, failure(result))
    assert len(terms) == FAILED_KEPT


def test_extreme_counts_stay_within_the_range() -> None:
    assert 999_000 < lower_bound_ppm(10**15, 0) <= 1_000_000
    assert 0 <= lower_bound_ppm(0, 10**15) < 1_000
