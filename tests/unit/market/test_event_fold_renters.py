"""A renter's record in the fold: orders once each, withdrawals in open auctions, closes before the start."""

from __future__ import annotations

import pytest

from sparewatt.market import event_fold
from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.reasons import CloseReason
from sparewatt.trust.renter_record import RenterRecord
from tests.unit.market.market_events import (
    ORDER,
    OTHER_ORDER,
    RENTER,
    accepted,
    an_event,
    confirmed,
    created,
    in_blocks,
    lookup,
    of_lease,
)


def record(*events: ChainEvent) -> RenterRecord:
    state = MarketState()
    for event in in_blocks(events):
        apply_event(state, event)
    return state.renters[RENTER]


def cancelled(order_id: str = ORDER) -> ChainEvent:
    return an_event("deployment_order.OrderCancelled", order_id=order_id)


def closed(reason: CloseReason) -> ChainEvent:
    return of_lease("LeaseClosed", reason=int(reason))


def test_an_order_counts_once_however_many_auctions_it_has() -> None:
    assert record(lookup(), lookup(attempt=1), lookup(OTHER_ORDER)) == RenterRecord(orders=2)


def test_a_withdrawal_counts_in_an_open_auction_and_not_after_one_that_found_nobody() -> None:
    assert record(lookup(), cancelled()) == RenterRecord(orders=1, withdrawn=1)
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=1)
    assert record(lookup(), unmatched, cancelled()) == RenterRecord(orders=1)


def test_a_lease_that_its_renter_closes_before_the_start_counts_and_one_that_ran_does_not() -> None:
    placed = (lookup(), accepted(), created())
    assert record(*placed, closed(CloseReason.RENTER)) == RenterRecord(orders=1, unstarted=1)
    assert record(*placed, confirmed(), closed(CloseReason.RENTER)) == RenterRecord(orders=1)


def test_what_the_provider_or_the_clock_ended_is_not_the_renters_doing() -> None:
    placed = (lookup(), accepted(), created())
    other = next(reason for reason in CloseReason if reason is not CloseReason.RENTER)
    assert record(*placed, closed(other)) == RenterRecord(orders=1)


def test_the_renters_with_the_oldest_orders_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "RENTERS_KEPT", 1)
    state = MarketState()
    for event in in_blocks([lookup(), lookup(OTHER_ORDER, renter="0x" + "f" * 40)]):
        apply_event(state, event)
    assert list(state.renters) == ["0x" + "f" * 40]


def test_a_copy_of_the_state_counts_on_its_own() -> None:
    state = MarketState()
    for event in in_blocks([lookup()]):
        apply_event(state, event)
    copy = state.copy()
    for event in in_blocks([cancelled()], first=5):
        apply_event(copy, event)
    assert (state.renters[RENTER].withdrawn, copy.renters[RENTER].withdrawn) == (0, 1)
