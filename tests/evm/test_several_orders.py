"""One bond in several orders at once: a bid in one, a place as stand-in in another.

A stand-in claims by itself, at a moment of its choice, and its claim locks bond. So a bidder with an order of its own,
in which it is the stand-in, can lock its bond there between its bid and the certificate. The contracts know nothing of
bids that are not accepted yet; validators do, and count such places as they count open bids.
"""

from __future__ import annotations

import pytest

from sparewatt.market.bonds import bid_bond_uusd, commit_needs_uusd
from sparewatt.market.rule import BidBook
from tests.evm.auction import Order, place_order
from tests.evm.machine import now, wait
from tests.evm.network import INSURANCE, UNBOND_S, USD, Network, key

HOUR = 3 * USD
BID_BOND = bid_bond_uusd(HOUR)
NO_START, RESIGNED = 16, 18
ACCOMPLICE, BIDDER, HONEST_ONE = 0, 1, 3
OWNER = key(4_711)


def set_bond(network: Network, number: int, amount: int) -> str:
    address = network.providers[number].address
    surplus = sum(network.stakes.bond_of(address)[:3]) - amount
    network.stakes.forfeit_bond(address, surplus, INSURANCE, INSURANCE, who=network.book.address)
    return address


def own_order(network: Network) -> tuple[Order, BidBook]:
    """An order of the attacker, with nobody in it but itself: the accomplice wins, the bidder is the stand-in."""
    only = tuple(network.providers[number].address for number in (ACCOMPLICE, BIDDER))
    order = place_order(network, renter=OWNER, only=only)
    return order, order.match({ACCOMPLICE: 1, BIDDER: HOUR})


def claim_in_own_order(network: Network) -> Order:
    order, book = own_order(network)
    order.hand_over(book, RESIGNED, who=network.providers[ACCOMPLICE].address)
    order.take_over(book, 1)
    return order


def test_a_bidder_that_claims_elsewhere_before_the_certificate_is_skipped_for_nothing(network: Network) -> None:
    """Why validators count places of stand-ins: the compensation of the own order is the attacker's own money."""
    bidder = set_bond(network, BIDDER, HOUR)
    order = place_order(network)
    certificate = order.certificate(order.book({BIDDER: 1, HONEST_ONE: 2 * USD}))
    assert network.stakes.free_bond(bidder) >= commit_needs_uusd([HOUR])
    own = claim_in_own_order(network)
    network.tasks.accept_match(*certificate)
    assert own.lease["locked"] == HOUR
    assert order.provider is network.providers[HONEST_ONE]
    assert [event["provider"] for event in network.orders.logged("CandidateSkipped")] == [bidder]
    assert sum(network.stakes.bond_of(bidder)[:3]) == HOUR


def test_with_a_bond_for_the_place_too_it_is_bound_by_its_bid(network: Network) -> None:
    """An hour for the open bid and an hour for the place: whatever the claim locks, the bid bond is left."""
    bidder = set_bond(network, BIDDER, commit_needs_uusd([HOUR, HOUR]))
    order = place_order(network)
    certificate = order.certificate(book := order.book({BIDDER: 1, HONEST_ONE: 2 * USD}))
    claim_in_own_order(network)
    network.tasks.accept_match(*certificate)
    assert order.provider.address == bidder
    assert order.lease["locked"] == BID_BOND
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    assert network.escrow.deposit_of(order.order_id) == 10 * USD + BID_BOND
    order.take_over(book, 1)
    assert order.provider is network.providers[HONEST_ONE]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_bond_behind_several_leases_is_locked_for_each(network: Network, number: int) -> None:
    bidder = set_bond(network, BIDDER, 3 * HOUR)
    orders = [place_order(network, renter=key(800 + i)) for i in range(number)]
    for order in orders:
        order.match({BIDDER: HOUR})
    assert network.stakes.bond_of(bidder)[:3] == ((3 - number) * HOUR, number * HOUR, 0)
    for order in orders:
        network.orders.close(order.order_id, 1, who=order.renter.address)
    assert network.stakes.bond_of(bidder)[:3] == (3 * HOUR, 0, 0)


def test_unbonding_while_a_place_is_held_keeps_the_bond_lockable(network: Network) -> None:
    """A stand-in that unbonds after the match still claims with what is on its way out; once it has left, it cannot."""
    bidder = set_bond(network, BIDDER, HOUR)
    order, book = own_order(network)
    network.stakes.unbond_bond(HOUR, who=bidder)
    ready_at = now() + UNBOND_S
    order.hand_over(book, RESIGNED, who=network.providers[ACCOMPLICE].address)
    order.take_over(book, 1)
    assert network.stakes.bond_of(bidder) == (0, HOUR, 0, ready_at)
