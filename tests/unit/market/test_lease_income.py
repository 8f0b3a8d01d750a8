"""What a lease pays each of its providers, over failovers."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.market.lease_income import TermIncome, income_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    CAROL,
    ORDER,
    an_event,
    confirmed,
    created,
    handed_over,
    in_blocks,
    of_lease,
    settled,
    stream_started,
)
from tests.unit.market.test_lease_history import STARTED, STARTED_S, at

STOPPED = an_event("escrow.StreamStopped", lease_id=ORDER)


def paid(payee: str, *, amount: int, fee: int) -> ChainEvent:
    event = settled(amount=amount, deposit=500_000)
    return replace(event, args={**event.args, "payee": payee, "fee": fee})


def income(*later: ChainEvent, now: int) -> list[TermIncome]:
    state = MarketState()
    for event in [*in_blocks(STARTED), *later]:
        apply_event(state, event)
    return income_of(state.leases[ORDER], state.streams[ORDER], {ALICE, BOB}, at=now)


def test_a_running_lease_is_due_by_the_second_and_booked_until_its_end() -> None:
    (alice,) = income(now=STARTED_S + 180)
    assert (alice.earned_uusd, alice.due_uusd, alice.is_current) == (0, 100_000, True)
    assert alice.ends_at == stream_started().args["end_at"]


def test_each_provider_has_what_it_was_paid_without_the_fee() -> None:
    moved = at(STARTED_S + 180, paid(ALICE, amount=100_000, fee=5_000), STOPPED, handed_over(reason=18))
    taken = at(STARTED_S + 200, created(provider=BOB, term=2, position=1), confirmed(BOB, term=2), stream_started())
    again = at(STARTED_S + 300, paid(BOB, amount=50_000, fee=2_500))
    closed = at(STARTED_S + 400, paid(BOB, amount=50_000, fee=2_500), STOPPED, of_lease("LeaseClosed", reason=1))
    alice, bob = income(*moved, *taken, *again, *closed, now=STARTED_S + 900)
    assert (alice.earned_uusd, alice.term.left_at, alice.due_uusd) == (95_000, STARTED_S + 180, 0)
    assert (bob.earned_uusd, bob.term.placed_at, bob.term.left_at) == (95_000, STARTED_S + 200, STARTED_S + 400)
    assert (bob.ends_at, bob.is_current) == (None, False)


def test_who_never_had_it_has_nothing() -> None:
    state = MarketState()
    for event in in_blocks(STARTED):
        apply_event(state, event)
    assert income_of(state.leases[ORDER], state.streams[ORDER], {BOB, CAROL}, at=STARTED_S) == []


def test_a_lease_that_ended_without_a_provider_ends_no_term_twice() -> None:
    left = at(STARTED_S + 180, STOPPED, handed_over(reason=17))
    closed = at(STARTED_S + 400, of_lease("LeaseClosed", reason=5))
    (alice,) = income(*left, *closed, now=STARTED_S + 900)
    assert alice.term.left_at == STARTED_S + 180
