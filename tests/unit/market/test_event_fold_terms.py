"""What the fold keeps of terms that ended: the events that a provider's reputation is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.trust.lease_record import EndedTerm, TermResult
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    HASH,
    ORDER,
    RENTER,
    START_S,
    accepted,
    an_event,
    confirmed,
    created,
    deposited,
    handed_over,
    lookup,
    of_lease,
)

PLACED = (lookup(), deposited(), accepted(), created())
RATE_UUSD = 2_000_000
"""Of `created`."""


def folded(*events: ChainEvent, seconds: tuple[int, ...] = ()) -> MarketState:
    """`seconds`: how long after the one before each of the last events came; else ten."""
    state = MarketState()
    unix_s = START_S
    waits = [10] * (len(events) - len(seconds)) + list(seconds)
    for number, (event, wait) in enumerate(zip(events, waits, strict=True), start=1):
        unix_s += wait
        apply_event(state, replace(event, block_number=number, unix_s=unix_s))
    return state


def closed(reason: int = 1) -> ChainEvent:
    return of_lease("LeaseClosed", reason=reason)


def test_a_lease_that_ran_and_was_closed_is_served() -> None:
    state = folded(*PLACED, confirmed(), closed(), seconds=(1_800,))
    ended_at = START_S + 50 + 1_800
    assert state.ended_terms == {ALICE: (EndedTerm(RENTER, TermResult.SERVED, 1_800, RATE_UUSD // 2, ended_at),)}


@pytest.mark.parametrize("reason", [2, 3, 4])
def test_the_agreed_time_a_notice_and_an_empty_deposit_are_no_failures(reason: int) -> None:
    state = folded(*PLACED, confirmed(), closed(reason), seconds=(30,))
    assert [ended.result for ended in state.ended_terms[ALICE]] == [TermResult.SERVED]


def test_a_renter_that_closes_within_a_minute_of_the_start_left_early() -> None:
    assert folded(*PLACED, confirmed(), closed(), seconds=(59,)).ended_terms[ALICE][0].result is TermResult.LEFT_EARLY
    assert folded(*PLACED, confirmed(), closed(), seconds=(60,)).ended_terms[ALICE][0].result is TermResult.SERVED


def test_a_close_before_the_start_says_nothing_of_the_provider() -> None:
    assert folded(*PLACED, closed()).ended_terms == {}
    later_term = (confirmed(), handed_over(reason=17), created(provider=BOB, term=2, position=1), closed())
    assert BOB not in folded(*PLACED, *later_term).ended_terms, "that the term before had started does not matter"


def test_an_order_that_is_cancelled_says_nothing_of_anyone() -> None:
    assert folded(lookup(), an_event("deployment_order.OrderCancelled", order_id=ORDER)).ended_terms == {}


@pytest.mark.parametrize(
    ("reason", "compensation", "result"),
    [
        (16, 5, TermResult.NO_START),
        (17, 5, TermResult.DOWN),
        (17, 0, TermResult.DOWN),
        (18, 5, TermResult.RESIGNED),
        (18, 0, TermResult.SERVED),
        (16, 0, TermResult.SERVED),
    ],
)
def test_a_hand_over_is_a_failure_if_something_was_owed(reason: int, compensation: int, result: TermResult) -> None:
    state = folded(*PLACED, confirmed(), handed_over(reason=reason, compensation=compensation), seconds=(100,))
    (ended,) = state.ended_terms[ALICE]
    assert (ended.result, ended.ran_s) == (result, 100)


def test_who_never_started_has_served_nothing() -> None:
    (ended,) = folded(*PLACED, handed_over(reason=16)).ended_terms[ALICE]
    assert (ended.result, ended.ran_s, ended.earned_uusd) == (TermResult.NO_START, 0, 0)


def test_each_provider_answers_for_its_own_term() -> None:
    second = (created(provider=BOB, term=2, position=1), confirmed(BOB, term=2), closed())
    state = folded(*PLACED, confirmed(), handed_over(reason=17), *second, seconds=(700, 10, 10, 300))
    assert [(ended.result, ended.ran_s) for ended in state.ended_terms[ALICE]] == [(TermResult.DOWN, 700)]
    assert [(ended.result, ended.ran_s) for ended in state.ended_terms[BOB]] == [(TermResult.SERVED, 300)]


def test_pauses_do_not_count_as_time_that_ran() -> None:
    pause = (of_lease("LeasePaused", reason=1), of_lease("LeaseResumed", confirm_by=START_S + 9_999), confirmed())
    state = folded(*PLACED, confirmed(), *pause, closed(), seconds=(100, 5_000, 10, 200))
    assert state.ended_terms[ALICE][0].ran_s == 300


def test_pay_is_counted_by_the_rate_of_its_time() -> None:
    cheaper = {"spec_hash": HASH, "rate_uusd": 1_000_000, "duration_s": 99, "seq": 1}
    update = an_event("lease_moves.LeaseUpdated", lease_id=ORDER, **cheaper)
    state = folded(*PLACED, confirmed(), update, closed(), seconds=(3_600, 3_600))
    assert (state.ended_terms[ALICE][0].ran_s, state.ended_terms[ALICE][0].earned_uusd) == (7_200, 3_000_000)


def test_who_won_and_had_no_bond_has_failed_and_who_was_suspended_has_not() -> None:
    skipped = {"order_id": ORDER, "provider": BOB}
    state = folded(lookup(), an_event("deployment_order.CandidateSkipped", **skipped, suspended=False))
    assert [ended.result for ended in state.ended_terms[BOB]] == [TermResult.UNBONDED]
    state = folded(lookup(), an_event("deployment_order.CandidateSkipped", **skipped, suspended=True))
    assert state.ended_terms == {}


def test_a_provider_that_is_its_own_renter_shows_nothing() -> None:
    state = folded(lookup(renter=ALICE), deposited(), accepted(), created(), confirmed(), closed(), seconds=(9_000,))
    assert state.ended_terms == {}


def test_a_copy_of_the_state_has_terms_of_its_own() -> None:
    state = folded(*PLACED, confirmed(), closed(), seconds=(100,))
    copy = state.copy()
    assert copy.ended_terms == state.ended_terms
    copy.ended_terms.clear()
    assert state.ended_terms
