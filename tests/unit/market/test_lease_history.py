"""A lease's history: who, why, and where its money went, out of the contracts' events alone."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.lease_history import HISTORY_EVENTS, HistoryEntry, HistoryKind, history_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import (
    ORDER,
    RENTER,
    START_S,
    accepted,
    an_event,
    confirmed,
    created,
    deposited,
    handed_over,
    in_blocks,
    lookup,
    of_lease,
    settled,
    stream_started,
)

STARTED = [lookup(), deposited(deposit=1_000_000), accepted(), created(), confirmed(), stream_started()]
"""Two dollars an hour: the deposit lasts half an hour."""
STARTED_S = START_S + 60


def at(unix_s: int, *events: ChainEvent) -> list[ChainEvent]:
    """One block."""
    number = unix_s - START_S + 100
    return [replace(event, block_number=number, log_index=index, unix_s=unix_s) for index, event in enumerate(events)]


def history(*later: list[ChainEvent], now: int = STARTED_S) -> list[HistoryEntry]:
    return history_of(ORDER, [*in_blocks(STARTED), *(event for block in later for event in block)], now=now)


def kinds(entries: list[HistoryEntry]) -> list[HistoryKind]:
    return [entry.kind for entry in entries][5:]


def test_a_start_is_told_from_the_order_on() -> None:
    entries = history()
    assert [entry.kind.value for entry in entries] == ["ordered", "deposit_added", "matched", "placed", "started"]
    assert (entries[1].amount_uusd, entries[3].hourly_uusd) == (1_000_000, 2_000_000)
    assert [entry.who for entry in entries] == ["renter", "renter", "validators", "validators", "provider"]


def test_a_close_says_who_why_and_what_was_refunded() -> None:
    closed = at(
        STARTED_S + 90,
        of_lease("LeaseClosed", reason=1),
        settled(amount=50_000, deposit=950_000),
        an_event("escrow.StreamStopped", lease_id=ORDER),
        an_event("escrow.Refunded", lease_id=ORDER, payer=RENTER, amount=950_000),
    )
    last = history(closed)[-1]
    assert (last.kind, last.who, last.reason) == (HistoryKind.CLOSED, "renter", "RENTER")
    assert (last.paid_uusd, last.refunded_uusd, last.compensation_uusd) == (50_000, 950_000, 0)
    assert "the renter closed it" in last.text


def test_the_warning_falls_due_when_four_fifths_are_spent_and_is_given_once() -> None:
    low_s = STARTED_S + 1_440
    assert kinds(history(now=low_s - 1)) == []
    warned = history(now=low_s)
    assert (warned[-1].kind, warned[-1].at) == (HistoryKind.DEPOSIT_LOW, low_s)
    paused = at(
        low_s + 10,
        of_lease("LeasePaused", reason=1),
        settled(amount=805_555, deposit=194_445),
        an_event("escrow.StreamStopped", lease_id=ORDER),
    )
    assert kinds(history(paused, now=low_s + 9_000)) == [HistoryKind.DEPOSIT_LOW, HistoryKind.PAUSED]


def test_a_top_up_ends_the_warning_and_the_next_one_counts_from_it() -> None:
    topped = at(
        STARTED_S + 1_500,
        an_event(
            "escrow.DepositChanged", lease_id=ORDER, payer=RENTER, amount=1_000_000, from_owed=0, deposit=2_000_000
        ),
    )
    entries = history(topped, now=STARTED_S + 2_000)
    assert kinds(entries) == [HistoryKind.DEPOSIT_LOW, HistoryKind.DEPOSIT_ADDED]
    assert kinds(history(topped, now=STARTED_S + 2_880))[-1] is HistoryKind.DEPOSIT_LOW


def test_an_empty_deposit_and_a_hand_over_have_their_typed_reasons() -> None:
    empty = at(STARTED_S + 1_800, of_lease("LeasePaused", reason=4))
    assert (history(empty)[-1].who, history(empty)[-1].reason) == ("network", "EMPTY")
    down = history(at(STARTED_S + 20, handed_over(reason=17)))[-1]
    assert (down.who, down.reason, down.compensation_uusd) == ("validators", "DOWN", 2_000_000)


def test_a_code_of_another_release_is_told_by_its_number() -> None:
    assert history(at(STARTED_S + 20, of_lease("LeaseClosed", reason=99)))[-1].reason == "99"


def test_money_comes_from_events_that_are_read_too() -> None:
    assert {"escrow.Settled", "escrow.Refunded", "deployment_order.LeaseClosed"} <= set(HISTORY_EVENTS)
