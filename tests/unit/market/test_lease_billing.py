"""Burn rate, runway and warnings of a lease, to the second and the unit."""

from __future__ import annotations

from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.market.lease_billing import DepositWarning, LeaseBilling, RunLimit, billing_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import ORDER, START_S, an_event, in_blocks, of_lease, settled
from tests.unit.market.test_lease_history import STARTED, STARTED_S, at


def billing(*later: ChainEvent, now: int) -> LeaseBilling:
    state = MarketState()
    for event in [*in_blocks(STARTED), *later]:
        apply_event(state, event)
    return billing_of(state.orders[ORDER], state.leases[ORDER], state.streams[ORDER], at=now)


def test_a_running_lease_is_charged_by_the_second_before_anything_is_settled() -> None:
    found = billing(now=STARTED_S + 180)
    assert (found.rate_uusd, found.spent_uusd, found.left_uusd) == (2_000_000, 100_000, 900_000)
    assert (found.runs_until, found.limit) == (STARTED_S + 1_800, RunLimit.DEPOSIT)
    assert (found.runway_s, found.warning, found.paused_s) == (1_620, None, 0)


def test_the_warning_comes_at_four_fifths_and_not_a_second_before() -> None:
    assert billing(now=STARTED_S + 1_439).warning is None
    assert billing(now=STARTED_S + 1_440).warning is DepositWarning.LOW


def test_a_pause_costs_nothing_and_is_counted() -> None:
    paused = at(
        STARTED_S + 180,
        of_lease("LeasePaused", reason=1),
        settled(amount=100_000, deposit=900_000),
        an_event("escrow.StreamStopped", lease_id=ORDER),
    )
    found = billing(*paused, now=STARTED_S + 1_180)
    assert (found.rate_uusd, found.spent_uusd, found.paused_s) == (0, 100_000, 1_000)
    assert (found.runs_until, found.runway_s, found.warning) == (None, 1_620, None)
    resumed = at(STARTED_S + 1_180, of_lease("LeaseResumed", confirm_by=START_S + 9_999))
    assert billing(*paused, *resumed, now=STARTED_S + 5_000).paused_s == 1_000


def test_an_empty_deposit_tells_when_the_grace_ends() -> None:
    empty = at(
        STARTED_S + 1_800,
        settled(amount=1_000_000, deposit=0),
        an_event("escrow.StreamStopped", lease_id=ORDER),
        of_lease("LeasePaused", reason=4),
    )
    found = billing(*empty, now=STARTED_S + 1_900)
    assert (found.warning, found.left_uusd) == (DepositWarning.EMPTY, 0)
    assert found.grace_ends_at is not None
    assert found.grace_ends_at > STARTED_S + 1_800


def test_what_has_ended_warns_nobody() -> None:
    closed = at(
        STARTED_S + 1_700,
        of_lease("LeaseClosed", reason=1),
        settled(amount=944_444, deposit=55_556),
        an_event("escrow.StreamStopped", lease_id=ORDER),
        an_event("escrow.Refunded", lease_id=ORDER, payer="0x", amount=55_556),
    )
    found = billing(*closed, now=STARTED_S + 1_700)
    assert (found.warning, found.spent_uusd, found.left_uusd) == (None, 944_444, 0)
