"""A third party with public data proves the faults of a match and slashes: each lie, and nobody beside the liar."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.evidence_calls import book_demand_call
from sparewatt.market.faults import MarketFault, ProvenFault, find_faults, silence
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.market.rule import BidBook, book_of, leaf_of
from sparewatt.protocol.contracts.match import Bid, Task
from sparewatt.protocol.contracts.match_messages import MatchMessage
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order
from tests.evm.machine import refused, wait
from tests.evm.network import BOOK_S, MIN_STAKE, USD, Network, profile_of
from tests.evm.public_data import (
    CHALLENGER,
    chain_context,
    commit,
    commit_list,
    history_indices,
    proposal,
    prove,
    reveal_list,
    slashed_keys,
    vote,
)

PRICES = {0: 2 * USD, 1: USD, 2: 3 * USD, 3: 50 * USD}


def bids(order: Order, prices: dict[int, int] = PRICES) -> list[Bid]:
    return [order.bid(order.network.providers[number], price) for number, price in prices.items()]


def honest_messages(order: Order, book: BidBook) -> list[MatchMessage]:
    """What every validator but the first one signs, in public."""
    known = bids(order)
    commits = [commit(order, provider, bid) for provider, bid in zip(order.network.providers, known, strict=False)]
    task = order.task(book)
    others = order.network.validators[1:]
    return [
        *[commit_list(order, validator, commits) for validator in others],
        *[reveal_list(order, validator, known) for validator in others],
        proposal(order, others[0], book, task),
        *[vote(order, validator, task) for validator in others],
    ]


def faults_of(order: Order, lies: list[MatchMessage], *, book: BidBook | None = None) -> tuple[ProvenFault, ...]:
    """What a third party finds in the lies of the first validator among the honest messages of the others."""
    messages = honest_messages(order, book or order.book(PRICES))
    pool = EvidencePool(chain_context(order)).add_all([*lies, *messages])
    return find_faults(pool, indices=history_indices(order.network))


def require_slashed(order: Order, faults: tuple[ProvenFault, ...], *expected: MarketFault) -> None:
    liar = order.network.validators[0].vote_key.address.lower()
    assert {fault.fault for fault in faults} == set(expected)
    assert {culprit for fault in faults for culprit in fault.culprits} == {liar}
    prove(order.network, faults)
    assert slashed_keys(order.network) == {liar}
    assert order.network.stakes.owed(CHALLENGER) > 0


def lying_vote(order: Order, book: BidBook, task: Task, *, listed: list[Bid] | None = None) -> list[MatchMessage]:
    liar = order.network.validators[0]
    lists = [] if listed is None else [reveal_list(order, liar, listed)]
    return [*lists, proposal(order, liar, book, task)]


def test_honest_validators_have_no_fault(order: Order) -> None:
    assert faults_of(order, []) == ()


def test_a_vote_for_a_bid_that_is_not_the_best_is_slashed(order: Order) -> None:
    book = order.book(PRICES)
    best, second, *_ = book.ranking
    task = replace(order.task(book), first=second, second=best)
    require_slashed(order, faults_of(order, lying_vote(order, book, task, listed=bids(order))), MarketFault.RANK)


@pytest.mark.parametrize("slots", [(3, 0, 1), (1, 1, 0), (1, 9, 0), (0xFFFF, 0xFFFF, 0xFFFF), (1, 0, 0xFFFF)])
def test_every_wrong_list_of_candidates_is_slashed(order: Order, slots: tuple[int, int, int]) -> None:
    book = order.book(PRICES)
    task = replace(order.task(book), first=slots[0], second=slots[1], third=slots[2])
    require_slashed(order, faults_of(order, lying_vote(order, book, task)), MarketFault.RANK)


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3), (0, 2, 3)])
def test_a_vote_for_a_tree_without_a_listed_bid_is_slashed(order: Order, kept: tuple[int, ...]) -> None:
    book = order.book({number: PRICES[number] for number in kept})
    lies = lying_vote(order, book, order.task(book), listed=bids(order))
    require_slashed(order, faults_of(order, lies), MarketFault.OMISSION)


def test_a_bid_that_the_voter_did_not_list_is_no_omission_of_its_vote(order: Order) -> None:
    book = order.book({0: 2 * USD, 1: USD})
    listed = bids(order, {0: 2 * USD, 1: USD})
    assert faults_of(order, lying_vote(order, book, order.task(book), listed=listed)) == ()


def test_a_vote_for_a_wrong_price_is_slashed(order: Order) -> None:
    """The leaf follows from the profile and a price that its provider never bid."""
    wrong = order.book({**PRICES, 1: 2 * USD + 1})
    lies = lying_vote(order, wrong, order.task(wrong), listed=bids(order))
    require_slashed(order, faults_of(order, lies), MarketFault.OMISSION)


def test_a_leaf_that_does_not_follow_from_its_profile_is_slashed(order: Order) -> None:
    honest = order.book(PRICES)
    leaves = [replace(leaf, score=1) if i == 2 else leaf for i, leaf in enumerate(honest.leaves)]
    book = book_of(order.order_id, leaves)
    require_slashed(order, faults_of(order, lying_vote(order, book, order.task(book))), MarketFault.LEAF)


@pytest.mark.parametrize("number", range(6))
def test_a_leaf_of_a_provider_without_a_profile_is_slashed(order: Order, number: int) -> None:
    edges = [int(provider.address, 16) for provider in order.network.providers]
    stranger = f"0x{[1, *(edge + 1 for edge in edges)][number]:040x}"
    bid = replace(order.bid(order.network.providers[0], USD), provider=stranger)
    book = book_of(order.order_id, [leaf_of(order.policy, bid, profile_of(stranger))])
    require_slashed(order, faults_of(order, lying_vote(order, book, order.task(book))), MarketFault.LEAF)


@pytest.mark.parametrize("places", [(1, 0, 2, 3), (0, 0, 1, 2)])
def test_leaves_out_of_order_are_slashed(order: Order, places: tuple[int, ...]) -> None:
    honest = order.book({number: (number + 1) * USD // 2 for number in range(4)})
    leaves = tuple(honest.leaves[i] for i in places)
    book = replace(honest, leaves=leaves, tree=merkle_tree([struct_hash(leaf) for leaf in leaves]))
    faults = faults_of(order, lying_vote(order, book, order.task(book)), book=order.book(PRICES))
    assert MarketFault.ORDER in {fault.fault for fault in faults}
    prove(order.network, [fault for fault in faults if fault.fault is MarketFault.ORDER])
    assert slashed_keys(order.network) == {order.network.validators[0].vote_key.address.lower()}


def test_signing_twice_is_slashed(order: Order) -> None:
    liar, known = order.network.validators[0], bids(order)
    commits = [commit(order, provider, bid) for provider, bid in zip(order.network.providers, known, strict=False)]
    whole, part = order.book(PRICES), order.book({0: 2 * USD})
    pairs: list[list[MatchMessage]] = [
        [commit_list(order, liar, commits), commit_list(order, liar, commits[:1])],
        [reveal_list(order, liar, []), reveal_list(order, liar, known[:1])],
        [vote(order, liar, order.task(whole)), proposal(order, liar, part, order.task(part))],
    ]
    for lies in pairs:
        faults = faults_of(order, lies)
        assert [(fault.fault, len(fault.culprits)) for fault in faults] == [(MarketFault.DOUBLE_SIGN, 1)]
        prove(order.network, faults)
    liar_stake = order.network.stakes.validator_of(liar.operator.address)[1]
    assert MIN_STAKE - liar_stake >= 3 * MIN_STAKE // 20 - MIN_STAKE // 100
    assert slashed_keys(order.network) == {liar.vote_key.address.lower()}


def test_votes_in_two_rounds_and_the_same_list_twice_are_no_fault(order: Order) -> None:
    liar, whole, part = order.network.validators[0], order.book(PRICES), order.book({0: 2 * USD})
    lists = [reveal_list(order, liar, bids(order)[:1])] * 2
    rounds = [vote(order, liar, order.task(whole)), vote(order, liar, order.task(part), round_=1)]
    assert faults_of(order, [*lists, *rounds]) == ()


def test_what_strangers_sign_proves_nothing(order: Order) -> None:
    """A key without weight, a list of another attempt, and a commit that the node key did not sign."""
    network, known = order.network, bids(order)
    stranger = network.join(99)
    network.validators.remove(stranger)
    elsewhere = replace(order, attempt=1)
    lies: list[MatchMessage] = [
        reveal_list(order, stranger, []),
        reveal_list(order, stranger, known),
        reveal_list(elsewhere, network.validators[0], known),
        reveal_list(order, network.validators[0], []),
        commit(order, network.providers[2], known[0]),
        commit(order, network.providers[2], order.bid(network.providers[0], 5)),
    ]
    assert faults_of(order, lies) == ()


def test_bidders_that_commit_twice_or_do_not_reveal_lose_their_bid_bond(order: Order) -> None:
    network = order.network
    hidden, double = network.providers[2], network.providers[4]
    sealed = commit(order, hidden, order.bid(hidden, 5))
    twice = [commit(order, double, order.bid(double, price)) for price in (5, 6)]
    book = order.match({0: 2 * USD, 1: USD})
    messages: list[MatchMessage] = [
        *[commit_list(order, validator, [sealed, twice[0]]) for validator in network.validators[:4]],
        *[commit_list(order, validator, [sealed, twice[1]]) for validator in network.validators[4:]],
        proposal(order, network.validators[0], book, order.task(book)),
    ]
    pool = EvidencePool(chain_context(order)).add_all(messages)
    assert {fault.fault for fault in find_faults(pool, indices=history_indices(network))} == {MarketFault.TWO_COMMITS}
    faults = find_faults(pool, indices=history_indices(network), accepted=order.record(book))
    assert {fault.fault: fault.culprits for fault in faults} == {
        MarketFault.TWO_COMMITS: (double.address,),
        MarketFault.UNREVEALED: (hidden.address,),
    }
    free = {each.address: network.stakes.free_bond(each.address) for each in (hidden, double)}
    prove(network, faults)
    for provider, before in free.items():
        assert before - network.stakes.free_bond(provider) == order.bid_bond


def test_signers_that_hide_the_leaves_are_slashed(order: Order) -> None:
    network = order.network
    book = order.match(PRICES)
    task, record = order.task(book), order.record(book)
    pool = EvidencePool(chain_context(order)).add_all([vote(order, each, task) for each in network.validators[:5]])
    assert find_faults(pool, indices=history_indices(network), accepted=record) == ()
    fault = silence(pool, task, record, indices=history_indices(network))
    assert fault is not None
    network.fund(CHALLENGER)
    contracts = Contracts(shipped_abis(), {"dispute_book": network.book.address})
    network.book.raw(book_demand_call(contracts, order.order_id, 0).data, who=CHALLENGER)
    with refused("TOO_EARLY"):
        prove(network, [fault])
    wait(BOOK_S + 1)
    prove(network, [fault])
    assert slashed_keys(network) == {each.vote_key.address.lower() for each in network.validators[:5]}
    other = replace(record, round=1)
    assert silence(pool, task, other, indices=history_indices(network)) is None


def test_a_vote_judged_by_another_stake_version_is_left_alone(order: Order, network: Network) -> None:
    book = order.book({0: 2 * USD})
    task = replace(order.task(book), stake_version=order.stake_version - 1)
    lies = lying_vote(order, book, task, listed=bids(order))
    assert faults_of(order, lies) == ()


def test_a_cartel_that_had_a_worse_bid_accepted_pays_and_the_lease_goes_on(order: Order) -> None:
    network, book = order.network, order.book(PRICES)
    cartel = network.validators[:5]
    worse = replace(book, ranking=book.ranking[1:])
    task = order.task(worse)
    votes = order.votes(task, voters=cartel)
    network.tasks.accept_match(task.values(), 0, order.policy.values(), order.candidates(worse), votes)
    winner = order.lease["provider"]
    public: list[MatchMessage] = [
        proposal(order, cartel[0], worse, task),
        *(vote(order, each, task) for each in cartel),
    ]
    pool = EvidencePool(chain_context(order)).add_all(public)
    (fault,) = find_faults(pool, indices=history_indices(network), accepted=order.record(worse))
    assert fault.fault is MarketFault.RANK
    prove(network, [fault])
    assert slashed_keys(network) == {each.vote_key.address.lower() for each in cartel}
    passed_over = book.leaves[book.ranking[0]].provider
    assert network.stakes.owed(passed_over) == 5 * MIN_STAKE // 5
    assert order.lease["provider"] == winner != passed_over
