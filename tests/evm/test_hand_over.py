"""Failover of a lease to the next candidate: its evidence, its compensation, and the end after the last candidate."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.market.rule import BidBook
from sparewatt.protocol.contracts.match import CertificateRecord, Down
from sparewatt.protocol.contracts.meta_transactions import Resign
from tests.evm.auction import RENTER, Order
from tests.evm.machine import now, refused, wait
from tests.evm.network import TREASURY, USD, key

PENDING, ACTIVE, PAUSED, UNPLACED, CLOSED = range(1, 6)
UNMATCHED = 3
NO_START, DOWN, RESIGNED = 16, 17, 18
PRICES = {0: 2 * USD, 1: USD, 2: 3 * USD}
STRANGER = key(61).address


def hand_over(
    order: Order,
    book: BidBook,
    reason: int,
    *,
    who: str = STRANGER,
    down_since: int = 0,
    votes: Any = (),
    signature: bytes = bytes(65),
    record: CertificateRecord | None = None,
) -> None:
    shown = (record or order.record(book)).values()
    order.network.orders.hand_over(order.order_id, shown, reason, down_since, list(votes), signature, who=who)


def down_votes(order: Order, *, since: int, voters: int = 7, term: int | None = None) -> list[tuple[bytes, int]]:
    lease = order.lease
    message = Down(order.order_id, lease["term"] if term is None else term, lease["provider"], since)
    return order.network.votes(message, voters=order.network.validators[:voters])


def test_a_winner_that_never_starts_pays_and_the_next_gets_the_lease(order: Order) -> None:
    book = order.match(PRICES)
    first = order.provider.address
    with refused("NOT_LATE"):
        hand_over(order, book, NO_START)
    wait(order.policy.start_s + 1)
    before = order.network.stakes.free_bond(first)
    hand_over(order, book, NO_START)
    assert order.provider.address == order.network.providers[0].address
    assert order.network.escrow.deposit_of(order.order_id) == 11 * USD
    assert order.network.stakes.bond_of(first)[:2] == (before, 0)
    assert (order.lease["term"], order.lease["rate"], order.lease["position"]) == (2, 2 * USD, 1)


def test_a_stand_in_that_does_not_start_pays_nothing(order: Order) -> None:
    book = order.match(PRICES)
    for _ in range(2):
        wait(order.policy.start_s + 1)
        hand_over(order, book, NO_START)
    assert order.network.escrow.deposit_of(order.order_id) == 11 * USD
    assert order.lease["position"] == 2


def test_after_a_resume_nobody_owes_a_start(order: Order) -> None:
    book = order.started(PRICES)
    order.network.orders.pause(order.order_id, who=RENTER.address)
    order.network.orders.resume(order.order_id, who=RENTER.address)
    wait(order.policy.start_s + 1)
    hand_over(order, book, NO_START)
    assert order.network.escrow.deposit_of(order.order_id) == 10 * USD


@pytest.mark.parametrize("notice", [False, True])
def test_a_resignation_without_notice_costs_an_hour_of_pay(order: Order, notice: bool) -> None:  # noqa: FBT001
    book = order.started(PRICES)
    provider = order.provider.address
    if notice:
        order.network.orders.give_notice(order.order_id, who=provider)
    wait(360)
    hand_over(order, book, RESIGNED, who=provider)
    paid = USD // 10
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == paid
    assert order.network.escrow.deposit_of(order.order_id) == 10 * USD - paid + (0 if notice else USD)


def test_a_resignation_is_signed_for_this_term(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider
    orders = order.network.orders
    with refused("NOT_PROVIDER"):
        hand_over(order, book, RESIGNED, signature=order.network.signed(RENTER, orders, Resign(order.order_id, 1)))
    with refused("BAD_SIGNATURE"):
        hand_over(order, book, RESIGNED)
    signature = order.network.signed(provider.node_key, orders, Resign(order.order_id, 1))
    hand_over(order, book, RESIGNED, signature=signature)
    with refused("NOT_PROVIDER"):
        hand_over(order, book, RESIGNED, signature=signature)


def test_a_provider_that_a_quorum_finds_down_is_paid_until_then(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider.address
    wait(360)
    since = now()
    wait(order.policy.down_s)
    hand_over(order, book, DOWN, down_since=since, votes=down_votes(order, since=since))
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == USD // 10
    assert order.lease["duration_left"] == order.policy.duration_s - 360


def test_down_needs_a_quorum_time_and_this_term(order: Order) -> None:
    book = order.started(PRICES)
    started = now()
    wait(100)

    def claim(since: int, **changes: Any) -> None:
        hand_over(order, book, DOWN, down_since=since, votes=down_votes(order, since=since, **changes))

    with refused("NO_QUORUM"):
        claim(started, voters=4)
    with refused("NOT_DOWN_LONG_ENOUGH"):
        claim(now() - order.policy.down_s + 1)
    with refused("BEFORE_TERM"):
        claim(started - 1)
    with pytest.raises(Exception, match=r"NO_SUCH_HISTORY|VOTES_NOT_ASCENDING"):
        claim(started, term=2)
    order.network.orders.pause(order.order_id, who=RENTER.address)
    order.network.orders.resume(order.order_id, who=RENTER.address)
    with refused("NOT_ACTIVE"):
        claim(started)


def test_what_was_settled_beyond_the_outage_stays_paid(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider.address
    since = now()
    wait(360)
    order.network.escrow.settle(order.order_id)
    hand_over(order, book, DOWN, down_since=since, votes=down_votes(order, since=since))
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == USD // 10
    assert order.network.escrow.deposit_of(order.order_id) == 10 * USD - USD // 10 + USD


def test_when_nobody_is_left_the_lease_waits_for_a_new_auction(order: Order) -> None:
    book = order.match({1: USD})
    wait(order.policy.start_s + 1)
    hand_over(order, book, NO_START)
    assert (order.lease["state"], order.state) == (UNPLACED, UNMATCHED)
    with refused("NOT_RUNNING"):
        hand_over(order, book, NO_START)
    order.network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    order.match({0: 2 * USD})
    assert (order.lease["state"], order.lease["term"]) == (PENDING, 2)
    order.network.orders.confirm_start(order.order_id, b"\1" * 32, who=order.provider.address)
    wait(3600)
    assert order.network.escrow.accrued(order.order_id) == 2 * USD


def test_who_left_cannot_end_the_lease_by_an_old_notice(order: Order) -> None:
    book = order.started({1: USD})
    provider = order.provider.address
    order.network.orders.give_notice(order.order_id, who=provider)
    wait(order.policy.reclaim_s)
    hand_over(order, book, RESIGNED, who=provider)
    assert order.lease["state"] == UNPLACED
    with refused("NOT_PROVIDER"):
        order.network.orders.close(order.order_id, 3, who=provider)


@pytest.mark.parametrize("end", ["cancel", "close", "expire"])
def test_an_unplaced_lease_ends_with_a_refund(order: Order, end: str) -> None:
    book = order.match({1: USD})
    wait(order.policy.start_s + 1)
    hand_over(order, book, NO_START)
    orders = order.network.orders
    if end == "cancel":
        orders.cancel_order(order.order_id, who=RENTER.address)
    elif end == "close":
        orders.close(order.order_id, 1, who=RENTER.address)
    else:
        wait(86_401)
        orders.expire_attempt(order.order_id)
    assert order.lease["state"] == CLOSED
    assert order.network.escrow.owed(RENTER.address) == 11 * USD


def test_a_move_needs_the_accepted_record_and_a_known_reason(order: Order) -> None:
    book = order.match(PRICES)
    wait(order.policy.start_s + 1)
    record = order.record(book)
    other = CertificateRecord(record.task_hash, 1, record.chosen)
    with refused("WRONG_RECORD"):
        hand_over(order, book, NO_START, record=other)
    for reason in (0, 15, 19, 2**256 - 1):
        with refused("UNKNOWN_REASON"):
            hand_over(order, book, reason)


def test_a_pending_update_does_not_survive_a_hand_over(order: Order) -> None:
    book = order.started(PRICES)
    order.network.orders.propose_update(order.order_id, b"\6" * 32, USD, 1, who=RENTER.address)
    hand_over(order, book, RESIGNED, who=order.provider.address)
    order.network.orders.confirm_start(order.order_id, b"\1" * 32, who=order.provider.address)
    with refused("NOT_PROPOSED"):
        order.network.orders.accept_update(order.order_id, b"\6" * 32, USD, 1, who=order.provider.address)
