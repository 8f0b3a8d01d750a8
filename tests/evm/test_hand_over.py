"""Failover of a lease: the evidence, the compensation, the stand-ins' turns, and the end after the last candidate."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.protocol.contracts.match import CertificateRecord, Down
from sparewatt.protocol.contracts.meta_transactions import Accept, Resign
from tests.evm.auction import RENTER, STRANGER, Order, place_order
from tests.evm.machine import now, refused, wait
from tests.evm.network import ATTEMPT_S, GUARDIAN, TREASURY, USD, Network

PENDING, ACTIVE, PAUSED, UNPLACED, CLOSED, VACANT = range(1, 7)
MATCHED, UNMATCHED, CLOSED_ORDER, EXPIRED = 2, 3, 4, 5
NO_START, DOWN, RESIGNED = 16, 17, 18
PRICES = {0: 2 * USD, 1: USD, 2: 3 * USD}
"""The winner is provider 1, the stand-ins are 0 and 2."""


def down_votes(order: Order, *, since: int, voters: int = 7, term: int | None = None) -> list[tuple[bytes, int]]:
    lease = order.lease
    message = Down(order.order_id, lease["term"] if term is None else term, lease["provider"], since)
    return order.network.votes(message, voters=order.network.validators[:voters])


def deposit_of(order: Order) -> int:
    amount: int = order.network.escrow.deposit_of(order.order_id)
    return amount


def vacated(order: Order) -> Any:
    """Its winner did not start."""
    book = order.match(PRICES)
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    return book


def test_a_winner_that_never_starts_pays_and_the_lease_is_vacant(order: Order) -> None:
    book = order.match(PRICES)
    first = order.provider.address
    with refused("NOT_LATE"):
        order.hand_over(book, NO_START)
    wait(order.policy.start_s + 1)
    before = order.network.stakes.free_bond(first)
    order.hand_over(book, NO_START)
    assert (order.lease["state"], order.state) == (VACANT, MATCHED)
    assert order.lease["vacated_at"] == now()
    assert deposit_of(order) == 11 * USD
    assert order.network.stakes.bond_of(first)[:2] == (before, 0)
    assert order.network.escrow.logged("Compensated") == [
        {"lease_id": order.order_id, "amount": USD, "deposit": 11 * USD}
    ]


def test_the_next_candidate_claims_at_once_and_starts_in_its_time(order: Order) -> None:
    book = vacated(order)
    order.take_over(book, 1)
    assert order.provider.address == order.network.providers[0].address
    assert (order.lease["state"], order.lease["confirm_by"]) == (PENDING, now() + order.policy.standin_s)
    assert (order.lease["term"], order.lease["rate"], order.lease["position"]) == (2, 2 * USD, 1)
    assert order.lease["locked"] == order.network.stakes.bond_of(order.provider.address)[1] == 2 * USD
    order.confirm()
    wait(3600)
    assert order.network.escrow.accrued(order.order_id) == 2 * USD


def test_turns_are_counted_on_chain(order: Order) -> None:
    """Neither the caller of `hand_over` nor a later candidate takes the next one's turn away."""
    book = vacated(order)
    with refused("NOT_ITS_TURN"):
        order.take_over(book, 2)
    wait(order.policy.standin_s - 1)
    with refused("NOT_ITS_TURN"):
        order.take_over(book, 2)
    wait(1)
    order.take_over(book, 2)
    assert order.provider.address == order.network.providers[2].address
    with refused("NOT_VACANT"):
        order.take_over(book, 1)


def test_an_earlier_stand_in_may_still_claim_in_the_turn_of_a_later_one(order: Order) -> None:
    book = vacated(order)
    wait(2 * order.policy.standin_s)
    order.take_over(book, 1)
    assert order.lease["position"] == 1


def test_a_place_that_was_passed_cannot_be_claimed(order: Order) -> None:
    book = vacated(order)
    wait(order.policy.standin_s)
    order.take_over(book, 2)
    wait(order.policy.standin_s + 1)
    order.hand_over(book, NO_START)
    assert order.lease["state"] == UNPLACED


@pytest.mark.parametrize("position", [0, 3, 2**256 - 1])
def test_only_a_stand_in_of_the_certificate_claims(order: Order, position: int) -> None:
    book = vacated(order)
    record = order.record(book)
    with refused("NOT_A_STAND_IN"):
        order.network.moves.take_over(order.order_id, record.values(), position, b"", who=record.chosen[0].provider)


def test_an_empty_place_of_the_certificate_is_nobodys(order: Order) -> None:
    book = order.match({0: 2 * USD, 1: USD})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    wait(order.policy.standin_s)
    with refused("NOT_A_STAND_IN"):
        order.take_over(book, 2, who=STRANGER)


def test_a_stand_in_is_placed_by_its_own_claim_only(order: Order) -> None:
    book = vacated(order)
    network, standin = order.network, order.network.providers[0]
    with refused("NOT_PROVIDER"):
        order.take_over(book, 1, who=RENTER.address, signature=network.signed(RENTER, network.moves, accept(order, 2)))
    for term in (1, 3):
        signature = network.signed(standin.node_key, network.moves, accept(order, term))
        with refused("NOT_PROVIDER"):
            order.take_over(book, 1, who=STRANGER, signature=signature)
    wrong_contract = network.signed(standin.node_key, network.orders, accept(order, 2))
    with refused("NOT_PROVIDER"):
        order.take_over(book, 1, who=STRANGER, signature=wrong_contract)
    order.take_over(book, 1, who=STRANGER, signature=network.signed(standin.node_key, network.moves, accept(order, 2)))
    assert order.provider is standin


def accept(order: Order, term: int) -> Accept:
    return Accept(order.order_id, term)


def test_a_stand_in_claims_with_its_node_key(order: Order) -> None:
    book = vacated(order)
    order.take_over(book, 1, who=order.network.providers[0].node_key.address)
    assert order.lease["state"] == PENDING


def test_a_stand_in_needs_a_bond_and_no_suspension(order: Order) -> None:
    book = vacated(order)
    network, standin = order.network, order.network.providers[0].address
    free = network.stakes.free_bond(standin)
    network.stakes.forfeit_bond(standin, free - order.bid_bond + 1, GUARDIAN, GUARDIAN, who=network.book.address)
    with refused("BOND_TOO_SMALL"):
        order.take_over(book, 1)
    network.stakes.deposit_bond(standin, 1, who=standin)
    network.registry.suspend(standin, bytes(32), who=GUARDIAN)
    with refused("SUSPENDED"):
        order.take_over(book, 1)
    network.registry.reinstate(standin, who=GUARDIAN)
    order.take_over(book, 1)
    assert order.lease["locked"] == order.bid_bond


def test_a_stand_in_that_claims_and_does_not_start_owes_as_the_winner_does(order: Order) -> None:
    book = vacated(order)
    order.take_over(book, 1)
    wait(order.policy.standin_s + 1)
    order.hand_over(book, NO_START)
    assert deposit_of(order) == 10 * USD + USD + 2 * USD
    assert order.lease["state"] == VACANT
    order.take_over(book, 2)
    wait(order.policy.standin_s + 1)
    order.hand_over(book, NO_START)
    assert deposit_of(order) == 10 * USD + USD + 2 * USD + 3 * USD
    assert (order.lease["state"], order.state) == (UNPLACED, UNMATCHED)


def test_a_stand_in_that_does_not_claim_loses_nothing(order: Order) -> None:
    vacated(order)
    orders, bonds = order.network.orders, [bond_of(order, n) for n in (0, 2)]
    wait(2 * order.policy.standin_s)
    with refused("STAND_INS_HAVE_TIME"):
        orders.expire_attempt(order.order_id)
    wait(1)
    orders.expire_attempt(order.order_id)
    assert orders.events == ["AttemptExpired", "LeaseUnplaced", "OrderUnmatched"]
    assert (order.lease["state"], order.state) == (UNPLACED, UNMATCHED)
    assert [bond_of(order, n) for n in (0, 2)] == bonds


def bond_of(order: Order, provider: int) -> Any:
    return order.network.stakes.bond_of(order.network.providers[provider].address)


def test_until_its_time_is_ended_a_stand_in_may_claim_late(order: Order) -> None:
    book = vacated(order)
    wait(10 * order.policy.standin_s)
    order.take_over(book, 2)
    assert order.lease["state"] == PENDING


@pytest.mark.parametrize("act", ["cancel_order", "expire_attempt", "resume", "give_notice", "close as used up"])
def test_a_vacant_lease_waits_for_its_stand_ins(order: Order, act: str) -> None:
    vacated(order)
    orders = order.network.orders
    refusals = {
        "cancel_order": "NOT_OPEN",
        "expire_attempt": "STAND_INS_HAVE_TIME",
        "resume": "NOT_PAUSED",
        "give_notice": "NOT_RUNNING",
    }
    if act in refusals:
        with refused(refusals[act]):
            orders.send(act, (order.order_id,), who=RENTER.address)
    else:
        with refused("NOT_RUNNING"):
            orders.close(order.order_id, 2, who=STRANGER)


def test_the_renter_closes_a_vacant_lease_with_the_compensation(order: Order) -> None:
    vacated(order)
    order.network.orders.close(order.order_id, 1, who=RENTER.address)
    assert order.lease["state"] == CLOSED
    assert order.network.escrow.owed(RENTER.address) == 11 * USD


def test_after_a_resume_nobody_owes_a_start(order: Order) -> None:
    book = order.started(PRICES)
    order.network.orders.pause(order.order_id, who=RENTER.address)
    order.network.orders.resume(order.order_id, who=RENTER.address)
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    assert deposit_of(order) == 10 * USD


@pytest.mark.parametrize("notice", [False, True])
def test_a_resignation_without_notice_costs_an_hour_of_pay(order: Order, notice: bool) -> None:  # noqa: FBT001
    book = order.started(PRICES)
    provider = order.provider.address
    if notice:
        order.network.orders.give_notice(order.order_id, who=provider)
    wait(360)
    order.hand_over(book, RESIGNED, who=provider)
    paid = USD // 10
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == paid
    assert deposit_of(order) == 10 * USD - paid + (0 if notice else USD)


def test_a_resignation_is_signed_for_this_term(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider
    moves = order.network.moves
    with refused("NOT_PROVIDER"):
        order.hand_over(book, RESIGNED, signature=order.network.signed(RENTER, moves, Resign(order.order_id, 1)))
    with refused("BAD_SIGNATURE"):
        order.hand_over(book, RESIGNED)
    signature = order.network.signed(provider.node_key, moves, Resign(order.order_id, 1))
    order.hand_over(book, RESIGNED, signature=signature)
    with refused("NOT_RUNNING"):
        order.hand_over(book, RESIGNED, signature=signature)
    order.take_over(book, 1)
    with refused("NOT_PROVIDER"):
        order.hand_over(book, RESIGNED, signature=signature)


def test_a_provider_that_a_quorum_finds_down_is_paid_until_then(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider.address
    wait(360)
    since = now()
    wait(order.policy.down_s)
    order.hand_over(book, DOWN, down_since=since, votes=down_votes(order, since=since))
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == USD // 10
    assert order.lease["duration_left"] == order.policy.duration_s - 360


def test_down_needs_a_quorum_time_and_this_term(order: Order) -> None:
    book = order.started(PRICES)
    started = now()
    wait(50)

    def claim(since: int, **changes: Any) -> None:
        order.hand_over(book, DOWN, down_since=since, votes=down_votes(order, since=since, **changes))

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


@pytest.mark.parametrize(("late", "good"), [(0, True), (1, False), (100_000, False)])
def test_a_kept_down_certificate_does_not_move_a_lease_that_recovered(order: Order, late: int, good: bool) -> None:  # noqa: FBT001
    book = order.started(PRICES)
    since = now()
    votes = down_votes(order, since=since)
    wait(order.policy.down_s + ATTEMPT_S + late)
    if good:
        order.hand_over(book, DOWN, down_since=since, votes=votes)
        assert order.lease["state"] == VACANT
    else:
        with refused("DOWN_TOO_LONG_AGO"):
            order.hand_over(book, DOWN, down_since=since, votes=votes)
        assert order.network.stakes.bond_of(order.provider.address)[1] == USD


def test_what_was_settled_beyond_the_outage_stays_paid(order: Order) -> None:
    book = order.started(PRICES)
    provider = order.provider.address
    since = now()
    wait(36)
    order.network.escrow.settle(order.order_id)
    order.hand_over(book, DOWN, down_since=since, votes=down_votes(order, since=since))
    assert order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY) == USD // 100
    assert deposit_of(order) == 10 * USD - USD // 100 + USD


def test_when_nobody_is_left_the_lease_waits_for_a_new_auction(order: Order) -> None:
    book = order.match({1: USD})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    assert order.network.orders.logged("LeaseUnplaced")
    assert (order.lease["state"], order.state) == (UNPLACED, UNMATCHED)
    with refused("NOT_PENDING"):
        order.hand_over(book, NO_START)
    order.network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    order.match({0: 2 * USD})
    assert (order.lease["state"], order.lease["term"]) == (PENDING, 2)
    order.confirm()
    wait(3600)
    assert order.network.escrow.accrued(order.order_id) == 2 * USD


@pytest.mark.parametrize("late", [0, 1])
def test_an_unplaced_lease_waits_at_least_the_grace(network: Network, late: int) -> None:
    """Also if its order would have expired before."""
    order = place_order(network, start_s=3600, standin_s=3600, empty_grace_s=7200)
    wait(50)
    book = order.match({1: USD})
    order.confirm()
    wait(86_300)
    order.network.escrow.top_up(order.order_id, 20 * USD, who=RENTER.address)
    order.hand_over(book, RESIGNED, who=order.provider.address)
    assert network.orders.logged("LeaseUnplaced") == [{"lease_id": order.order_id, "expires_at": now() + 7200}]
    wait(7200 + late)
    if late:
        network.orders.expire_attempt(order.order_id)
        assert order.state == EXPIRED
    else:
        with refused("ORDER_NOT_EXPIRED"):
            network.orders.expire_attempt(order.order_id)
        network.orders.reopen(order.order_id, order.policy.values())


def test_who_left_cannot_end_the_lease_by_an_old_notice(order: Order) -> None:
    book = order.started({1: USD})
    provider = order.provider.address
    order.network.orders.give_notice(order.order_id, who=provider)
    wait(order.policy.reclaim_s)
    order.hand_over(book, RESIGNED, who=provider)
    assert order.lease["state"] == UNPLACED
    with refused("NOT_PROVIDER"):
        order.network.orders.close(order.order_id, 3, who=provider)


@pytest.mark.parametrize("end", ["cancel", "close", "expire"])
def test_an_unplaced_lease_ends_with_a_refund(order: Order, end: str) -> None:
    book = order.match({1: USD})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
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


def test_attempts_used_up_do_not_end_an_order_whose_lease_had_a_provider(network: Network) -> None:
    """It waits for its renter, as an order with secrets must."""
    order = place_order(network, max_attempts=0)
    book = order.match({1: USD})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    with refused("ORDER_NOT_EXPIRED"):
        network.orders.expire_attempt(order.order_id)
    with refused("NO_ATTEMPT_LEFT"):
        network.orders.reopen(order.order_id, order.policy.values(), who=STRANGER)
    network.orders.reopen(order.order_id, order.policy.values(), who=RENTER.address)
    wait(ATTEMPT_S + 1)
    network.orders.expire_attempt(order.order_id)
    assert (order.state, order.lease["state"]) == (UNMATCHED, UNPLACED)


def test_a_move_needs_the_accepted_record_and_a_known_reason(order: Order) -> None:
    book = order.match(PRICES)
    wait(order.policy.start_s + 1)
    record = order.record(book)
    other = CertificateRecord(record.task_hash, 1, record.chosen)
    with refused("WRONG_RECORD"):
        order.hand_over(book, NO_START, record=other)
    for reason in (0, 15, 19, 2**256 - 1):
        with refused("UNKNOWN_REASON"):
            order.hand_over(book, reason)
    order.hand_over(book, NO_START)
    with refused("WRONG_RECORD"):
        order.network.moves.take_over(order.order_id, other.values(), 1, b"", who=order.network.providers[0].address)


def test_a_record_of_an_earlier_attempt_moves_nothing(order: Order) -> None:
    first = order.match({0: 2 * USD})
    old = order.record(first)
    wait(order.policy.start_s + 1)
    order.hand_over(first, NO_START)
    order.network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    order.match({1: USD})
    wait(order.policy.start_s + 1)
    with refused("WRONG_RECORD"):
        order.hand_over(first, NO_START, record=old)


def test_a_pending_update_does_not_survive_a_hand_over(order: Order) -> None:
    book = order.started(PRICES)
    moves, update = order.network.moves, (b"\6" * 32, USD, 60, 1)
    moves.propose_update(order.order_id, *update, who=RENTER.address)
    order.hand_over(book, RESIGNED, who=order.provider.address)
    order.take_over(book, 1)
    order.confirm()
    with refused("NOT_PROPOSED"):
        moves.accept_update(order.order_id, *update, who=order.provider.address)
