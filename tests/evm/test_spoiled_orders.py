"""Bidders that win and do not serve: what each attempt costs them, and that an honest bidder gets the lease.

The orders here pay at most $3 an hour, so the bid bond is $0.50, and an honest machine asks $2.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from sparewatt.market.rule import BidBook
from sparewatt.protocol.contracts.meta_transactions import NodeKey
from tests.evm.auction import RENTER, STRANGER, Order, place_order
from tests.evm.machine import Reverted, refused, wait
from tests.evm.network import ATTEMPT_S, GUARDIAN, INSURANCE, UNBOND_S, USD, Network, key

PENDING, UNPLACED, VACANT = 1, 4, 6
UNMATCHED = 3
NO_START, RESIGNED = 16, 18
PENNY, HONEST = 1, 2 * USD
BID_BOND = USD // 2
ATTACKERS = (0, 1, 2)
HONEST_ONE = 3


def bond_of(network: Network, provider: int) -> int:
    amount: int = sum(network.stakes.bond_of(network.providers[provider].address)[:3])
    return amount


class Auctions:
    """Bidders of an order, attempt after attempt. Validators refuse who paid or was skipped for want of a bond."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.out: set[str] = set()

    def bids(self, prices: dict[int, int]) -> BidBook:
        providers = self.order.network.providers
        listed = {number: price for number, price in prices.items() if providers[number].address not in self.out}
        book = self.order.match(listed)
        skipped = self.order.network.orders.logged("CandidateSkipped")
        self.out |= {event["provider"] for event in skipped if not event["suspended"]}
        return book

    def hand_over(self, book: BidBook, reason: int, *, who: str = STRANGER) -> int:
        self.order.hand_over(book, reason, who=who)
        (event,) = self.order.network.orders.logged("LeaseHandedOver")
        if event["compensation"]:
            self.out.add(event["provider"])
        paid: int = event["compensation"]
        return paid

    def reopen(self) -> None:
        self.order.network.orders.reopen(self.order.order_id, self.order.policy.values())
        self.order.attempt += 1


def spoil(auctions: Auctions, book: BidBook) -> int:
    """The winner never starts and nobody claims: returns what that cost."""
    order = auctions.order
    wait(order.policy.start_s + 1)
    paid = auctions.hand_over(book, NO_START)
    if order.lease["state"] == VACANT:
        wait(3 * order.policy.standin_s)
        order.network.orders.expire_attempt(order.order_id)
    assert (order.lease["state"], order.state) == (UNPLACED, UNMATCHED)
    return paid


def test_penny_bids_in_all_places_lose_a_bid_bond_per_attempt_and_then_the_order(network: Network) -> None:
    order = place_order(network, max_attempts=3)
    auctions = Auctions(order)
    bonds = {number: bond_of(network, number) for number in ATTACKERS}
    prices = {**dict.fromkeys(ATTACKERS, PENNY), HONEST_ONE: HONEST}
    for attempt in range(len(ATTACKERS)):
        if attempt:
            auctions.reopen()
        book = auctions.bids(prices)
        assert order.lease["provider"] in {network.providers[n].address for n in ATTACKERS}
        if len(auctions.out) == len(ATTACKERS) - 1:
            break
        assert spoil(auctions, book) == BID_BOND
    wait(order.policy.start_s + 1)
    assert auctions.hand_over(book, NO_START) == BID_BOND
    order.take_over(book, 1)  # with two attackers out, the honest bid has a place of the certificate
    order.confirm()
    assert order.provider is network.providers[HONEST_ONE]
    assert order.lease["rate"] == HONEST
    lost = sum(bonds.values()) - sum(bond_of(network, number) for number in ATTACKERS)
    assert lost == 3 * BID_BOND
    assert network.escrow.deposit_of(order.order_id) == 10 * USD + 3 * BID_BOND


def test_an_honest_stand_in_saves_the_attempt_itself(network: Network) -> None:
    order = place_order(network)
    auctions = Auctions(order)
    book = auctions.bids({0: PENNY, 1: PENNY, HONEST_ONE: HONEST})
    wait(order.policy.start_s + 1)
    assert auctions.hand_over(book, NO_START) == BID_BOND
    wait(order.policy.standin_s)  # the second penny bidder lets its turn pass
    order.take_over(book, 2)
    order.confirm()
    assert order.provider is network.providers[HONEST_ONE]


def test_a_claim_that_holds_the_order_up_costs_a_bid_bond_too(network: Network) -> None:
    order = place_order(network)
    auctions = Auctions(order)
    book = auctions.bids(dict.fromkeys(ATTACKERS, PENNY))
    wait(order.policy.start_s + 1)
    paid = [auctions.hand_over(book, NO_START)]
    for position in (1, 2):
        order.take_over(book, position)
        wait(order.policy.standin_s + 1)
        paid.append(auctions.hand_over(book, NO_START))
    assert paid == [BID_BOND] * 3
    assert len(auctions.out) == 3
    network.orders.cancel_order(order.order_id, who=RENTER.address)
    assert network.escrow.owed(RENTER.address) == 10 * USD + 3 * BID_BOND


def test_a_bidder_that_resigns_before_the_start_pays_as_one_that_never_starts(network: Network) -> None:
    order = place_order(network)
    auctions = Auctions(order)
    book = auctions.bids({0: PENNY, HONEST_ONE: HONEST})
    assert auctions.hand_over(book, RESIGNED, who=order.provider.address) == BID_BOND
    order.take_over(book, 1)
    assert order.provider is network.providers[HONEST_ONE]


@pytest.mark.parametrize("reclaim_s", [0, 10, 100])
def test_a_notice_before_the_start_is_no_way_out(network: Network, reclaim_s: int) -> None:
    """It would end the order, or leave it, for nothing as soon as the notice is shorter than the time to start."""
    order = place_order(network, reclaim_s=reclaim_s, start_s=30)
    auctions = Auctions(order)
    book = auctions.bids({0: PENNY, HONEST_ONE: HONEST})
    winner = order.provider.address
    with refused("NOT_STARTED"):
        network.orders.give_notice(order.order_id, who=winner)
    wait(29)
    with refused("NOTICE_NOT_OVER"):
        network.orders.close(order.order_id, 3, who=winner)
    assert auctions.hand_over(book, RESIGNED, who=winner) == BID_BOND
    order.take_over(book, 1)
    assert order.provider is network.providers[HONEST_ONE]


def test_after_a_resume_a_provider_gives_notice_before_it_starts_again(network: Network) -> None:
    order = place_order(network)
    order.started({0: HONEST})
    provider = order.provider.address
    network.orders.pause(order.order_id, who=RENTER.address)
    network.orders.resume(order.order_id, who=RENTER.address)
    network.orders.give_notice(order.order_id, who=provider)
    wait(order.policy.reclaim_s)
    network.orders.close(order.order_id, 3, who=provider)
    assert bond_of(network, 0) == network.stakes.free_bond(provider) == 100 * USD


@pytest.mark.parametrize("way", ["unbond", "maintenance", "leave", "change key"])
def test_no_way_out_of_a_place_after_the_bid(network: Network, way: str) -> None:
    """Each comes between commit and certificate; the bidder is placed all the same and pays if it does not start."""
    wait(UNBOND_S)
    order = place_order(network)
    bidder = network.providers[0]
    free = network.stakes.free_bond(bidder.address)
    certificate = order.certificate(book := order.book({0: PENNY, HONEST_ONE: HONEST}))
    if way == "unbond":
        network.stakes.unbond_bond(free, who=bidder.address)
    elif way == "maintenance":
        network.registry.set_status(3, who=bidder.address)
    elif way == "leave":
        network.registry.set_status(5, who=bidder.address)
    else:
        change_key(network)
    wait(ATTEMPT_S)
    network.tasks.accept_match(*certificate)
    assert order.provider is bidder
    wait(order.policy.start_s + 1)
    assert Auctions(order).hand_over(book, NO_START) == BID_BOND
    assert bond_of(network, 0) == free - BID_BOND


def change_key(network: Network) -> None:
    bidder, fresh = network.providers[0], key(77)
    proof = network.signed(fresh, network.registry, NodeKey(bidder.address, fresh.address))
    network.registry.set_node_key(fresh.address, proof, who=bidder.address)


def test_a_bond_that_left_before_the_bid_is_the_validators_to_refuse_and_else_skipped(network: Network) -> None:
    bidder = network.providers[0].address
    network.stakes.unbond_bond(network.stakes.free_bond(bidder), who=bidder)
    wait(UNBOND_S)
    network.stakes.finish_unbond_bond(bidder)
    order = place_order(network)
    auctions = Auctions(order)
    auctions.bids({0: PENNY, HONEST_ONE: HONEST})
    assert order.provider is network.providers[HONEST_ONE]
    assert auctions.out == {bidder}


def test_emptying_the_own_bond_costs_more_than_the_bid_bond(network: Network) -> None:
    """The bidder proves a fault against itself, as claimant and as renter: half of what is forfeited is insurance's."""
    bidder = network.providers[0].address
    hour = 3 * USD
    network.stakes.unbond_bond(network.stakes.free_bond(bidder) - hour, who=bidder)
    wait(UNBOND_S)
    network.stakes.finish_unbond_bond(bidder)
    needed = hour - BID_BOND + 1
    before = network.stakes.owed(INSURANCE)
    network.stakes.forfeit_bond(bidder, needed, bidder, bidder, who=network.book.address)
    lost = network.stakes.owed(INSURANCE) - before
    assert lost >= hour * 5 // 12 > BID_BOND
    order = place_order(network)
    auctions = Auctions(order)
    auctions.bids({0: PENNY, HONEST_ONE: HONEST})
    assert order.provider is network.providers[HONEST_ONE]
    assert auctions.out == {bidder}


def test_one_bond_behind_two_bids_is_locked_once(network: Network) -> None:
    """The second place is passed over for want of a bond; the first one stays bonded in full."""
    bidder = network.providers[0].address
    excess = network.stakes.free_bond(bidder) - BID_BOND
    network.stakes.forfeit_bond(bidder, excess, GUARDIAN, GUARDIAN, who=network.book.address)
    first, second = place_order(network), place_order(network)
    for order in (first, second):
        Auctions(order).bids({0: PENNY, HONEST_ONE: HONEST})
    assert first.provider is network.providers[0]
    assert second.provider is network.providers[HONEST_ONE]
    assert first.lease["locked"] == BID_BOND


def test_the_caller_of_a_hand_over_cannot_leave_the_stand_ins_out(network: Network) -> None:
    """An attacker hands over and ends the attempt in one block: refused, and the stand-in claims."""
    order = place_order(network)
    book = order.match({0: PENNY, HONEST_ONE: HONEST})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    with refused("STAND_INS_HAVE_TIME"):
        network.orders.expire_attempt(order.order_id)
    with refused("NOT_UNMATCHED"):
        network.orders.reopen(order.order_id, order.policy.values())
    order.take_over(book, 1)
    assert order.provider is network.providers[HONEST_ONE]


@pytest.mark.parametrize("max_price", [1, 5, 6, 3600, USD, 2**40 - 1])
def test_a_spoiled_attempt_pays_the_renter_ten_minutes_of_its_highest_price(network: Network, max_price: int) -> None:
    bidder = network.providers[0].address
    network.stakes.deposit_bond(bidder, 2**38, who=bidder)
    order = place_order(network, max_price_uusd=max_price, deposit=max(1, max_price // 6) + 1)
    before = network.escrow.deposit_of(order.order_id)
    book = order.match({0: PENNY})
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    assert network.escrow.deposit_of(order.order_id) - before == max(1, max_price // 6)


def test_a_renter_that_orders_and_closes_before_the_start_pays_each_time(network: Network) -> None:
    provider = network.providers[0].address
    charges = []
    for _ in range(5):
        order = place_order(network, deposit=10 * USD, start_s=360)
        order.match({0: HONEST})
        before = network.escrow.owed(provider)
        network.orders.close(order.order_id, 1, who=RENTER.address)
        charges.append(network.escrow.owed(provider) - before)
    assert charges == [HONEST * 360 // 3600 * 95 // 100] * 5
    assert bond_of(network, 0) == 100 * USD
    assert network.escrow.owed(RENTER.address) == 10 * USD - HONEST // 10


BEFORE = ("nothing", "unbond", "maintenance", "empty the own bond")
AFTER = ("wait", "resign", "claim")


def act_before_the_certificate(network: Network, attacker: int, act: str) -> None:
    me, stakes = network.providers[attacker].address, network.stakes
    free = stakes.free_bond(me)
    if act == "unbond" and free:
        stakes.unbond_bond(free, who=me)
    elif act == "maintenance" and network.registry.status_of(me) == 2:
        network.registry.set_status(3, who=me)
    elif act == "empty the own bond":
        excess = max(0, bond_of(network, attacker) - BID_BOND + 1)
        stakes.forfeit_bond(me, excess, me, me, who=network.book.address)


def wealth(network: Network) -> int:
    addresses = [network.providers[number].address for number in ATTACKERS]
    owed: int = sum(network.stakes.owed(address) + network.escrow.owed(address) for address in addresses)
    return owed + sum(bond_of(network, number) for number in ATTACKERS)


def play_attempt(auctions: Auctions, rng: random.Random) -> bool:
    """One attempt with three spoilers and an honest bidder that follows the rules. True if the latter has the lease."""
    order, network = auctions.order, auctions.order.network
    honest = network.providers[HONEST_ONE].address
    for attacker in ATTACKERS:
        act_before_the_certificate(network, attacker, rng.choice(BEFORE))
    bids = {number: PENNY for number in ATTACKERS if rng.random() < 0.8}
    book = auctions.bids({**bids, HONEST_ONE: HONEST})
    chosen = [award.provider for award in order.record(book).chosen]
    while order.lease["state"] in (PENDING, VACANT):
        lease = order.lease
        if lease["provider"] == honest:
            order.confirm()
            return True
        if lease["state"] == PENDING and rng.choice(AFTER) == "resign":
            auctions.hand_over(book, RESIGNED, who=lease["provider"])
        elif lease["state"] == PENDING:
            wait(order.policy.start_s + 1)
            auctions.hand_over(book, NO_START)
        else:
            claim_in_turn(order, book, chosen, rng)
    return False


def claim_in_turn(order: Order, book: BidBook, chosen: list[str], rng: random.Random) -> None:
    """Each stand-in has its turn; the honest one takes it. If nobody does, the attempt is over."""
    honest = order.network.providers[HONEST_ONE].address
    for position in range(order.lease["position"] + 1, 3):
        claims = chosen[position] == honest or (int(chosen[position], 16) and rng.choice(AFTER) == "claim")
        with suppress(Reverted):  # a spoiler may have too little bond
            if claims:
                order.take_over(book, position)
                return
        wait(order.policy.standin_s)
    wait(3 * order.policy.standin_s)
    order.network.orders.expire_attempt(order.order_id)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_spoilers_do_an_attempt_costs_a_bid_bond_and_nobody_spoils_two(network: Network, seed: int) -> None:
    rng = random.Random(seed)
    order = place_order(network, max_attempts=len(ATTACKERS))
    auctions = Auctions(order)
    for attempt in range(len(ATTACKERS) + 1):
        if attempt:
            auctions.reopen()
        before, out = wealth(network), len(auctions.out)
        if play_attempt(auctions, rng):
            break
        assert before - wealth(network) >= BID_BOND
        assert len(auctions.out) > out
        for attacker in ATTACKERS:  # each fills its bond up again
            me = network.providers[attacker].address
            network.stakes.deposit_bond(me, 10 * USD, who=me)
    assert order.provider is network.providers[HONEST_ONE]
    assert bond_of(network, HONEST_ONE) == 100 * USD
