"""The uptime of a lease over its failovers: which seconds count as what, out of the contracts' events alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.market.lease_uptime import PPM, UptimeSpan, UptimeTally, counted, down_from, running_from, turned
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import (
    BOB,
    ORDER,
    START_S,
    TERMS,
    an_event,
    confirmed,
    created,
    handed_over,
    in_blocks,
    lookup,
    of_lease,
    settled,
)
from tests.unit.market.test_lease_history import STARTED, STARTED_S, at

DOWN, RESIGNED, NO_START = 17, 18, 16
DOWN_S = TERMS.down_s


def state_after(*blocks: list[ChainEvent], start: list[ChainEvent] = STARTED) -> MarketState:
    state = MarketState()
    for event in [*in_blocks(start), *(event for block in blocks for event in block)]:
        apply_event(state, event)
    return state


def tally(*blocks: list[ChainEvent], now: int, start: list[ChainEvent] = STARTED) -> UptimeTally:
    return counted(state_after(*blocks, start=start).leases[ORDER].uptime, at=now)


STARTED_AT = START_S + 50
"""The confirmation is the fifth event; the stream starts in a block of its own, ten seconds later."""


def stopped(*, seconds: int, deposit: int | None = None) -> list[ChainEvent]:
    """The events of a stream's end that was paid for so many seconds at two dollars an hour."""
    paid = 2_000_000 * seconds // 3_600
    left = 1_000_000 - paid if deposit is None else deposit
    return [settled(amount=paid, deposit=left), an_event("escrow.StreamStopped", lease_id=ORDER)]


def taken_over(seconds: int, *, term: int = 2) -> list[ChainEvent]:
    placed, started = created(provider=BOB, term=term, position=1), confirmed(BOB, term=term)
    return at(STARTED_S + seconds, placed, started)


def test_a_lease_that_never_ran_has_no_uptime() -> None:
    pending = tally(now=STARTED_S + 500, start=STARTED[:4])
    assert (pending.ppm, pending.has_started, pending.is_below_goal) == (None, False, False)
    failed = at(STARTED_S + 60, handed_over(reason=NO_START))
    assert tally(failed, now=STARTED_S + 900, start=STARTED[:4]).ppm is None


def test_a_lease_that_only_ran_was_up_all_the_time() -> None:
    ran = tally(now=STARTED_AT + 600)
    assert (ran.ppm, ran.running_s, ran.down_s, ran.outages) == (PPM, 600, 0, 0)
    assert tally(now=STARTED_AT).ppm == PPM


def test_an_outage_counts_from_the_second_up_to_which_its_provider_was_paid() -> None:
    """Votes say that it was down since second 600; the hand-over comes 100 s later, the stand-in 30 s after it."""
    down = at(STARTED_S + 700, *stopped(seconds=600), handed_over(reason=DOWN))
    found = tally(down, taken_over(730), now=STARTED_S + 1_000)
    assert (found.running_s, found.down_s, found.outages) == (10 + 600 + 270, 130, 1)
    assert found.ppm == 880 * PPM // 1_010
    assert found.lost_uusd == 2_000_000 * 130 // 3_600
    assert found.is_below_goal


def test_a_settlement_just_before_the_hand_over_hides_no_more_than_the_votes_leave_open() -> None:
    """Whoever settles a dead provider's lease pays it up to then; votes prove that it was silent for `down_s`."""
    down = at(STARTED_S + 700, *stopped(seconds=699), handed_over(reason=DOWN))
    found = tally(down, taken_over(730), now=STARTED_S + 730)
    assert found.down_s == DOWN_S + 30


def test_pay_that_ended_for_want_of_a_deposit_does_not_make_an_outage_longer() -> None:
    down = at(STARTED_S + 1_950, *stopped(seconds=1_800, deposit=0), handed_over(reason=DOWN))
    assert tally(down, now=STARTED_S + 1_950).down_s == DOWN_S


def test_an_outage_does_not_begin_before_the_term_did() -> None:
    down = at(STARTED_AT + 5, handed_over(reason=DOWN))
    found = tally(down, now=STARTED_AT + 5, start=STARTED[:5])
    assert (found.running_s, found.down_s) == (0, 5)


def test_a_low_price_is_rounded_in_favour_of_the_provider() -> None:
    """At 1,000 µUSD an hour a unit pays for 3.6 s: 100 s and 102 s are paid alike, and 103 s are taken to be up."""
    cheap = [*STARTED[:5], replace(STARTED[5], args={**STARTED[5].args, "rate_uusd": 1_000})]
    paid = [settled(amount=1_000 * 100 // 3_600, deposit=1), an_event("escrow.StreamStopped", lease_id=ORDER)]
    down = at(STARTED_S + 400, *paid, handed_over(reason=DOWN))
    assert tally(down, now=STARTED_S + 400, start=cheap).down_s == 400 - 100


def test_a_provider_that_leaves_after_its_notice_is_an_outage_until_the_next_has_started() -> None:
    left = at(STARTED_S + 700, *stopped(seconds=700), handed_over(reason=RESIGNED, compensation=0))
    found = tally(left, taken_over(710), now=STARTED_S + 710)
    assert (found.down_s, found.outages) == (10, 1)


def test_a_stand_in_that_does_not_start_prolongs_the_same_outage() -> None:
    left = at(STARTED_S + 700, *stopped(seconds=700), handed_over(reason=RESIGNED))
    failed = at(STARTED_S + 800, created(provider=BOB, term=2, position=1))
    late = at(STARTED_S + 900, handed_over(BOB, reason=NO_START))
    found = tally(left, failed, late, now=STARTED_S + 950)
    assert (found.down_s, found.outages) == (250, 1)


def test_a_pause_and_the_start_after_it_do_not_count() -> None:
    paused = at(STARTED_S + 100, of_lease("LeasePaused", reason=1), *stopped(seconds=100))
    resumed = at(STARTED_S + 5_000, of_lease("LeaseResumed", confirm_by=STARTED_S + 5_060))
    running = at(STARTED_S + 5_030, confirmed())
    found = tally(paused, resumed, running, now=STARTED_S + 5_130)
    assert (found.ppm, found.running_s, found.paused_s) == (PPM, 210, 4_930)


def test_a_provider_that_does_not_start_again_after_a_pause_is_an_outage_from_then_on() -> None:
    paused = at(STARTED_S + 100, of_lease("LeasePaused", reason=1), *stopped(seconds=100))
    resumed = at(STARTED_S + 200, of_lease("LeaseResumed", confirm_by=STARTED_S + 260))
    failed = at(STARTED_S + 261, handed_over(reason=NO_START, compensation=0))
    found = tally(paused, resumed, failed, now=STARTED_S + 300)
    assert (found.paused_s, found.down_s, found.outages) == (161, 39, 1)


def test_a_provider_that_leaves_a_paused_lease_is_no_outage() -> None:
    paused = at(STARTED_S + 100, of_lease("LeasePaused", reason=1), *stopped(seconds=100))
    left = at(STARTED_S + 900, handed_over(reason=RESIGNED, compensation=0))
    found = tally(paused, left, now=STARTED_S + 1_000)
    assert (found.down_s, found.paused_s) == (0, 900)


@pytest.mark.parametrize(("max_attempts", "down_s", "waiting_s"), [(3, 500, 0), (0, 0, 500)])
def test_a_lease_that_only_its_renter_can_auction_again_waits_for_it(
    max_attempts: int, down_s: int, waiting_s: int
) -> None:
    """With secrets there are no further attempts: time that the renter lets pass is nobody's outage."""
    start = [lookup(max_attempts=max_attempts), *STARTED[1:]]
    gone = at(
        STARTED_S + 700,
        *stopped(seconds=700, deposit=900_000),
        handed_over(reason=RESIGNED),
        of_lease("LeaseUnplaced", expires_at=STARTED_S + 90_000),
        an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=99),
    )
    found = tally(gone, now=STARTED_S + 1_200, start=start)
    assert (found.down_s, found.waiting_s) == (down_s, waiting_s)
    reopened = at(STARTED_S + 1_200, lookup(attempt=1, max_attempts=max_attempts))
    again = tally(gone, reopened, now=STARTED_S + 1_230, start=start)
    assert (again.down_s, again.waiting_s) == (down_s + 30, waiting_s)


def test_nothing_counts_after_the_end() -> None:
    closed = at(STARTED_S + 100, of_lease("LeaseClosed", reason=1))
    found = tally(closed, now=STARTED_S + 9_000)
    assert (found.running_s, found.span) == (110, UptimeSpan.ENDED)


def test_a_new_price_is_what_lost_seconds_are_worth() -> None:
    changed = at(
        STARTED_S + 100,
        an_event(
            "lease_moves.LeaseUpdated", lease_id=ORDER, spec_hash="0x00", rate_uusd=3_600_000, duration_s=900, seq=1
        ),
    )
    left = at(STARTED_S + 200, handed_over(reason=RESIGNED))
    found = tally(changed, left, now=STARTED_S + 210)
    assert (found.running_s, found.lost_uusd) == (210, 10_000)


def test_the_goal_is_exact() -> None:
    assert not UptimeTally(running_s=999, down_s=1).is_below_goal
    assert UptimeTally(running_s=998, down_s=1).is_below_goal
    assert UptimeTally(running_s=99_999, down_s=101).is_below_goal


@given(st.lists(st.tuples(st.sampled_from(list(UptimeSpan)[:5]), st.integers(0, 10_000)), max_size=20))
def test_every_second_since_the_first_start_counts_as_one_thing(spans: list[tuple[UptimeSpan, int]]) -> None:
    now, found, began = 1_000, UptimeTally(), None
    for span, seconds in spans:
        if span is UptimeSpan.RUNNING:
            found, began = running_from(found, at=now, rate_uusd=7), began or now
        elif span is UptimeSpan.DOWN:
            found = down_from(found, since=now - 50, at=now)
        elif span is not UptimeSpan.UNSTARTED:
            found = turned(found, span, at=now)
        now += seconds
    found = counted(found, at=now)
    total = found.running_s + found.down_s + found.paused_s + found.waiting_s
    assert total == (now - began if began else 0)
