"""Books on demand, and faults of bidders, each with the nearest case that is no fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.rule import BidBook, book_of, commit_of
from sparewatt.protocol.contracts.match import CommitList
from tests.evm.auction import Order, place_order
from tests.evm.machine import refused, wait
from tests.evm.network import ATTEMPT_S, BOOK_BOND, BOOK_S, CHALLENGE_S, INSURANCE, MIN_STAKE, USD, Network, key
from tests.evm.test_dispute import CHALLENGER, EMPTY_LEAF, PRICES, placed


def demanded(order: Order, prices: dict[int, int] | None = None) -> BidBook:
    book = order.match(PRICES if prices is None else prices)
    order.network.fund(CHALLENGER)
    order.network.book.demand_book(order.order_id, 0, who=CHALLENGER)
    return book


def publish(order: Order, book: BidBook, *, leaves: int | None = None, who: str = INSURANCE) -> None:
    shown = [leaf.values() for leaf in book.leaves[:leaves]]
    order.network.book.publish_book(order.task(book).values(), order.record(book).values(), shown, who=who)


def silence(order: Order, book: BidBook, voters: int) -> None:
    task = order.task(book)
    votes = order.votes(task, voters=order.network.validators[:voters])
    order.network.book.punish_silence(task.values(), order.record(book).values(), votes)


def test_the_publisher_of_a_book_gets_the_bond(order: Order) -> None:
    book = demanded(order)
    with refused("WRONG_COUNT"):
        publish(order, book, leaves=3)
    forged = replace(book, leaves=(*book.leaves[:3], replace(book.leaves[3], score=1)))
    with refused("WRONG_LEAVES"):
        publish(order, forged)
    with refused("TOO_EARLY"):
        silence(order, book, 7)
    publish(order, book)
    assert order.network.book.owed(INSURANCE) == BOOK_BOND
    with refused("ALREADY_PUBLISHED"):
        publish(order, book)
    wait(BOOK_S + 1)
    with refused("ALREADY_PUBLISHED"):
        silence(order, book, 7)


def test_an_unpublished_book_costs_every_signer_half_and_returns_the_bond(order: Order) -> None:
    book = demanded(order)
    wait(BOOK_S + 1)
    with refused("TOO_LATE"):
        publish(order, book)
    silence(order, book, 7)
    stakes = [order.network.stakes.validator_of(v.operator.address)[1] for v in order.network.validators]
    assert stakes == [MIN_STAKE // 2] * 7
    assert order.network.book.owed(CHALLENGER) == BOOK_BOND


def test_the_bond_comes_back_also_when_it_is_too_late_to_punish(order: Order) -> None:
    book = demanded(order)
    wait(2 * BOOK_S + 1)
    with refused("TOO_LATE"):
        silence(order, book, 7)
    silence(order, book, 0)
    silence(order, book, 0)
    assert order.network.book.owed(CHALLENGER) == BOOK_BOND


def test_a_book_is_demanded_once_in_time_of_an_accepted_match(order: Order) -> None:
    network = order.network
    network.fund(CHALLENGER)
    with refused("NOT_ACCEPTED"):
        network.book.demand_book(order.order_id, 0, who=CHALLENGER)
    book = order.match(PRICES)
    with refused("NOT_DEMANDED"):
        publish(order, book)
    other = replace(order.record(book), round=1)
    with refused("WRONG_RECORD"):
        network.book.publish_book(order.task(book).values(), other.values(), [])
    with refused("WRONG_TASK"):
        network.book.publish_book(replace(order.task(book), bid_count=9).values(), order.record(book).values(), [])
    network.book.demand_book(order.order_id, 0, who=CHALLENGER)
    with refused("ALREADY_DEMANDED"):
        network.book.demand_book(order.order_id, 0, who=CHALLENGER)
    wait(CHALLENGE_S + 1)
    with refused("TOO_LATE"):
        network.book.demand_book(order.order_id, 0, who=CHALLENGER)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 64, 128, 129, 255])
def test_a_book_of_any_size_is_recomputed_on_chain(order: Order, count: int) -> None:
    leaves = tuple(replace(EMPTY_LEAF, provider=f"0x{n + 1:040x}", price_uusd=1, status=1) for n in range(count))
    book = book_of(order.order_id, leaves)
    task = order.task(book)
    order.network.tasks.accept_no_match(task.values(), 0, order.votes(task))
    order.network.fund(CHALLENGER)
    order.network.book.demand_book(order.order_id, 0, who=CHALLENGER)
    publish(order, book)


def forfeit(order: Order, book: BidBook, number: int, *, lists: int = 7, spots: list[int], **kwargs: Any) -> None:
    network, provider = order.network, order.network.providers[number]
    bid = order.bid(provider, 5)
    commit = commit_of(bid)
    ids = tuple(sorted([commit.bid_id, b"\1" * 32])) if kwargs.get("named", True) else (b"\1" * 32,)
    listed = CommitList(order.order_id, order.attempt, ids)
    voters = network.validators[:lists][:: kwargs.get("step", 1)]
    shown = [(ids, network.signed(v.vote_key, network.tasks, listed), 0) for v in voters]
    signer = kwargs.get("signer", provider.node_key)
    record = kwargs.get("record", order.record(book))
    network.book.forfeit_bid(
        kwargs.get("task", order.task(book)).values(),
        record.values(),
        provider.address,
        commit.bid_id,
        network.signed(signer, network.tasks, commit),
        shown,
        [placed(book, i) for i in spots],
        who=CHALLENGER,
    )


def test_a_certified_bid_that_was_not_revealed_costs_the_bid_bond(order: Order) -> None:
    book = order.match({0: USD, 2: 2 * USD})
    provider, free = (
        order.network.providers[1].address,
        order.network.stakes.free_bond(order.network.providers[1].address),
    )
    for kwargs, reason in (
        ({"lists": 4}, "NO_QUORUM"),
        ({"named": False}, "NOT_LISTED"),
        ({"step": -1}, "LISTS_NOT_ASCENDING"),
        ({"signer": key(5)}, "NOT_SIGNED_BY_NODE_KEY"),
        ({"record": replace(order.record(book), round=1)}, "WRONG_RECORD"),
        ({"task": replace(order.task(book), bid_count=9)}, "WRONG_TASK"),
        ({"task": replace(order.task(book), attempt=1)}, "UNKNOWN_ATTEMPT"),
    ):
        with refused(reason):
            forfeit(order, book, 1, spots=[0, 1], **kwargs)
    forfeit(order, book, 1, spots=[0, 1])
    bid_bond = 3 * USD // 6
    assert order.network.stakes.free_bond(provider) == free - bid_bond
    assert order.network.stakes.owed(CHALLENGER) == bid_bond // 10
    assert order.network.stakes.owed(order.renter.address) == bid_bond * 4 // 10
    with refused("ALREADY_PUNISHED"):
        forfeit(order, book, 1, spots=[0, 1])


def test_a_revealed_bid_is_not_forfeited(order: Order) -> None:
    book = order.match(PRICES)
    for spots in ([], [0], [1], [0, 1], [1, 2], [0, 2]):
        with refused("NOT_ABSENT"):
            forfeit(order, book, 1, spots=spots)


def two_commits(order: Order, *, attempt: int = 0, same: bool = False, signer: Any = None) -> None:
    network, provider = order.network, order.network.providers[1]
    commits = [commit_of(order.bid(provider, price)) for price in ((5, 5) if same else (5, 6))]
    signatures = [network.signed(signer or provider.node_key, network.tasks, c) for c in commits]
    ids = [c.bid_id for c in commits]
    network.book.prove_two_commits(order.order_id, attempt, provider.address, ids, *signatures, who=CHALLENGER)


def test_two_commits_cost_the_bid_bond(order: Order) -> None:
    with refused("SAME_MESSAGE"):
        two_commits(order, same=True)
    with refused("UNKNOWN_ATTEMPT"):
        two_commits(order, attempt=1)
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        two_commits(order, signer=key(5))
    two_commits(order)
    assert order.network.stakes.owed(CHALLENGER) == 3 * USD // 60
    with refused("ALREADY_PUNISHED"):
        two_commits(order)


def test_a_bid_bond_is_taken_as_far_as_it_is_there(order: Order) -> None:
    provider = order.network.providers[1].address
    free = order.network.stakes.free_bond(provider)
    order.network.stakes.unbond_bond(free - 7, who=provider)
    two_commits(order)
    assert order.network.stakes.bond_of(provider)[:3] == (7, 0, free - 7 - 3 * USD // 6)


def test_bidders_answer_for_each_attempt_with_its_own_key(order: Order) -> None:
    """Two changes of the key later, the first attempt's commits are still the provider's."""
    network, provider = order.network, order.network.providers[1]
    first, old = replace(order), provider.node_key
    for number in (81, 82):
        wait(ATTEMPT_S + 1)
        network.set_node_key(provider, key(number))
    wait(1)
    network.orders.expire_attempt(order.order_id)
    network.orders.reopen(order.order_id, order.policy.values())
    order.attempt += 1
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        two_commits(order, attempt=1, signer=old)
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        two_commits(first)
    two_commits(first, signer=old)
    two_commits(order, attempt=1)
    assert network.stakes.owed(CHALLENGER) == 2 * (3 * USD // 60)


def test_whoever_owns_every_party_of_an_order_still_loses_half(order: Order) -> None:
    """A bidder that proves its own fault, as claimant and as renter: it does not empty its bond for nothing."""
    provider = order.network.providers[1].address
    total = sum(order.network.stakes.bond_of(provider)[:3])
    two_commits(order)
    back = order.network.stakes.owed(CHALLENGER) + order.network.stakes.owed(order.renter.address)
    lost = total - sum(order.network.stakes.bond_of(provider)[:3])
    assert lost == 3 * USD // 6
    assert back == lost // 2
    assert order.network.stakes.owed(INSURANCE) == lost - back


def test_a_bid_bond_is_never_nothing(network: Network) -> None:
    order = place_order(network, max_price_uusd=1)
    two_commits(order)
    assert network.stakes.owed(INSURANCE) == 1
