"""Which certificates the task manager accepts, and which it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.protocol.contracts.match import NO_LEAF, ReputationSnapshot, Vote
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order, place_order
from tests.evm.machine import refused, wait
from tests.evm.network import ATTEMPT_S, MIN_STAKE, SPACING_S, USD, Network

OPEN, MATCHED, UNMATCHED = 1, 2, 3
PRICES = {0: 2 * USD, 1: USD, 2: 3 * USD, 3: 4 * USD}
HIGH_S = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def accept(order: Order, certificate: tuple[Any, ...]) -> None:
    order.network.tasks.accept_match(*certificate)


def test_a_certificate_places_the_lease_with_the_best_bid(order: Order) -> None:
    book = order.match(PRICES)
    assert order.state == MATCHED
    assert order.lease["provider"] == order.network.providers[1].address
    assert order.network.tasks.record_of(order.order_id, 0) == order.record(book).record_hash()
    assert order.network.tasks.events == ["MatchAccepted"]


def test_a_losing_bid_costs_nothing(order: Order) -> None:
    """Whoever loses has sent no transaction, and its bond is as free as before."""
    network = order.network
    bonds = {each.address: network.stakes.bond_of(each.address) for each in network.providers}
    order.match(PRICES)
    winner = order.lease["provider"]
    changed = {each for each, bond in bonds.items() if network.stakes.bond_of(each) != bond}
    assert changed == {winner}
    few, many = (len(order.candidates(order.book(dict.fromkeys(range(count), USD)))[0][1]) for count in (4, 5))
    assert (few, many) == (2, 3), "a certificate has candidates and their paths, not the bids that lost"


def test_anyone_submits_and_only_the_first_counts(order: Order) -> None:
    certificate = order.certificate(order.book(PRICES))
    accept(order, certificate)
    with refused("ALREADY_MATCHED"):
        accept(order, certificate)


@pytest.mark.parametrize(("voters", "enough"), [(4, False), (5, True), (7, True)])
def test_more_than_two_thirds_of_the_stake_must_sign(order: Order, voters: int, enough: bool) -> None:  # noqa: FBT001
    certificate = order.certificate(order.book(PRICES), voters=order.network.validators[:voters])
    if enough:
        accept(order, certificate)
    else:
        with refused("NO_QUORUM"):
            accept(order, certificate)


@pytest.mark.parametrize(("extra", "enough"), [(0, False), (3, True)])
def test_exactly_two_thirds_are_not_enough(network: Network, extra: int, enough: bool) -> None:  # noqa: FBT001
    """Four of six equal stakes, and the same with a little more."""
    network.stakes.request_unbond(MIN_STAKE, who=network.validators.pop().operator.address)
    for validator in network.validators[:4] if extra else []:
        network.add_stake(validator.operator.address, extra)
        validator.history_index += 1
    order = place_order(network)
    certificate = order.certificate(order.book(PRICES), voters=network.validators[:4])
    for validator in network.validators[:4] if extra else []:
        validator.history_index -= 1
    if enough:
        accept(order, certificate)
    else:
        with refused("NO_QUORUM"):
            accept(order, certificate)


def test_votes_come_in_order_and_once(order: Order) -> None:
    task, round_, policy, candidates, votes = order.certificate(order.book(PRICES))
    for forged in ([*votes[1:], votes[0]], [votes[0], *votes]):
        with refused("VOTES_NOT_ASCENDING"):
            accept(order, (task, round_, policy, candidates, forged))


def test_a_stake_that_came_later_does_not_vote(order: Order) -> None:
    network = order.network
    late = network.add_validator(77, stake=100 * MIN_STAKE)
    certificate = order.certificate(order.book(PRICES), voters=[late])
    with refused("HISTORY_TOO_NEW"):
        accept(order, certificate)


def test_only_the_canonical_form_of_a_signature_counts(order: Order) -> None:
    task, round_, policy, candidates, votes = order.certificate(order.book(PRICES))
    signature, index = votes[0]
    s = int.from_bytes(signature[32:64], "big")
    twin = signature[:32] + (HIGH_S - s).to_bytes(32, "big") + bytes([27 + 28 - signature[64]])
    for forged in (twin, signature[:64] + b"\0", signature[:64], bytes(64) + b"\x1b"):
        with refused("BAD_SIGNATURE"):
            accept(order, (task, round_, policy, candidates, [(forged, index), *votes[1:]]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attempt": 1}, "WRONG_ATTEMPT"),
        ({"policy_hash": b"\1" * 32}, "WRONG_POLICY"),
        ({"stake_version": 1}, "WRONG_STAKE_VERSION"),
        ({"snapshot_epoch": 2}, "WRONG_SNAPSHOT"),
        ({"snapshot_root": b"\1" * 32}, "WRONG_SNAPSHOT"),
        ({"order_id": b"\1" * 32}, "NOT_OPEN"),
        ({"third": NO_LEAF}, "CANDIDATE_MISSING"),
        ({"first": 2, "second": 0}, "NOT_IN_BIDS"),
        ({"bid_count": 2}, "NOT_IN_BIDS"),
        ({"bid_count": 5}, "NOT_IN_BIDS"),
        ({"bid_root": b"\1" * 32}, "NOT_IN_BIDS"),
    ],
)
def test_a_task_that_differs_from_the_order_is_refused(order: Order, changes: dict[str, Any], reason: str) -> None:
    book = order.book(PRICES)
    task = replace(order.task(book), **changes)
    candidates = order.candidates(book)[:2] if "third" in changes else order.candidates(book)
    if "third" in changes:  # the task names three candidates, two are passed
        task = order.task(book)
    with refused(reason):
        accept(order, (task.values(), 0, order.policy.values(), candidates, order.votes(task)))


def test_the_policy_shown_is_the_policy_signed(order: Order) -> None:
    task, round_, _, candidates, votes = order.certificate(order.book(PRICES))
    other = replace(order.policy, max_price_uusd=order.policy.max_price_uusd + 1)
    with refused("WRONG_POLICY"):
        accept(order, (task, round_, other.values(), candidates, votes))


def forged_book(order: Order, **changes: Any) -> tuple[Any, ...]:
    """A certificate for a book whose winning leaf was changed by all validators together."""
    from sparewatt.market.rule import book_of

    book = order.book(PRICES)
    winner = book.ranking[0]
    leaves = [replace(leaf, **changes) if i == winner else leaf for i, leaf in enumerate(book.leaves)]
    forged = book_of(order.order_id, leaves)
    return order.certificate(replace(forged, ranking=(winner, *(i for i in forged.ranking if i != winner))))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": 3}, "NOT_ELIGIBLE"),
        ({"price_uusd": 0}, "NOT_ELIGIBLE"),
        ({"price_uusd": 2**40}, "NOT_ELIGIBLE"),
        ({"price_uusd": 3 * USD + 1}, "NOT_ELIGIBLE"),
        ({"score": 1}, "WRONG_SCORE"),
        ({"rtt_ms": 0}, "WRONG_SCORE"),
    ],
)
def test_a_false_candidate_is_refused_whoever_signed(order: Order, changes: dict[str, int], reason: str) -> None:
    with refused(reason):
        accept(order, forged_book(order, **changes))


def test_candidates_out_of_order_are_refused(order: Order) -> None:
    book = order.book({0: 2 * USD, 1: USD})
    swapped = replace(book, ranking=book.ranking[::-1])
    with refused("WRONG_ORDER"):
        accept(order, order.certificate(swapped))
    twice = replace(book, ranking=(book.ranking[0], book.ranking[0]))
    with refused("WRONG_ORDER"):
        accept(order, order.certificate(twice))


def test_no_provider_is_bound_without_its_signed_commit(order: Order) -> None:
    task, round_, policy, candidates, votes = order.certificate(order.book(PRICES))
    (leaf, path, _), *others = candidates
    forged = order.network.providers[0].node_key.sign(keccak256(b"x"))
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        accept(order, (task, round_, policy, [(leaf, path, forged), *others], votes))


def test_a_key_changed_after_the_lookup_does_not_void_the_certificate(order: Order) -> None:
    from tests.evm.network import key
    from tests.evm.test_registry import proof

    network = order.network
    provider = network.providers[1]
    wait(ATTEMPT_S + 1)
    network.orders.expire_attempt(order.order_id)
    network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    network.registry.set_node_key(*proof(network, provider.address, key(99)), who=provider.address)
    order.match(PRICES)
    assert order.lease["provider"] == provider.address


def test_an_attempt_ends(order: Order) -> None:
    certificate = order.certificate(order.book(PRICES))
    wait(ATTEMPT_S + 1)
    with refused("ATTEMPT_OVER"):
        accept(order, certificate)


def test_a_match_needs_candidates_and_no_match_has_none(order: Order) -> None:
    book = order.book(PRICES)
    task = order.task(book)
    with refused("NO_CANDIDATES"):
        accept(order, (task.values(), 0, order.policy.values(), [], order.votes(task)))
    with refused("HAS_CANDIDATES"):
        order.network.tasks.accept_no_match(task.values(), 0, order.votes(task))


@pytest.mark.parametrize("prices", [{}, {0: 10 * USD, 1: 11 * USD}])
def test_an_attempt_without_an_eligible_bid_ends_unmatched(order: Order, prices: dict[int, int]) -> None:
    task = order.task(order.book(prices))
    order.network.tasks.accept_no_match(task.values(), 0, order.votes(task))
    assert order.state == UNMATCHED
    with refused("ALREADY_MATCHED"):
        order.network.tasks.accept_no_match(task.values(), 0, order.votes(task))


@pytest.mark.parametrize("prices", [{0: USD}, {0: 2 * USD, 1: USD}, PRICES])
@pytest.mark.parametrize("rule", [0, 1])
def test_the_winner_is_paid_by_the_orders_rule(network: Network, prices: dict[int, int], rule: int) -> None:
    order = place_order(network, payment_rule=rule)
    book = order.match(prices)
    assert order.lease["rate"] == order.record(book).chosen[0].price_uusd
    if rule == 1 and len(prices) > 1:
        assert USD < order.lease["rate"] <= 2 * USD


def test_a_snapshot_follows_the_last_one_with_a_quorum(network: Network) -> None:
    def post(epoch: int, *, count: int = 1, root: bytes = b"\1" * 32, voters: int = 7) -> None:
        votes = network.votes(ReputationSnapshot(epoch, 0, root, count, bytes(32)), voters=network.validators[:voters])
        network.tasks.post_snapshot(epoch, 0, root, count, bytes(32), votes)

    with refused("TOO_EARLY"):
        post(2)
    wait(SPACING_S)
    with refused("WRONG_EPOCH"):
        post(3)
    with refused("NO_QUORUM"):
        post(2, voters=4)
    for count, root in ((0, b"\1" * 32), (1, bytes(32)), (2**20 + 1, b"\1" * 32)):
        with refused("BAD_ROOT"):
            post(2, count=count, root=root)
    post(2)
    assert network.tasks.latest_epoch() == 2


def test_votes_of_another_chain_contract_or_round_do_not_count(order: Order) -> None:
    book = order.book(PRICES)
    task = order.task(book)
    network = order.network
    vote = Vote(task.order_id, task.attempt, 1, struct_hash(task))
    shown = (task.values(), 0, order.policy.values(), order.candidates(book))
    with refused("NO_SUCH_HISTORY"):  # it recovers to another signer, unknown to the registry
        accept(order, (*shown, sorted_votes(network, vote)))
    at_orders = [(network.signed(v.vote_key, network.orders, order_vote(task)), 0) for v in network.validators]
    with pytest.raises(Exception, match=r"NO_SUCH_HISTORY|VOTES_NOT_ASCENDING"):
        accept(order, (*shown, at_orders))


def order_vote(task: Any) -> Vote:
    return Vote(task.order_id, task.attempt, 0, struct_hash(task))


def sorted_votes(network: Network, vote: Vote) -> list[tuple[bytes, int]]:
    """One vote is enough to see which signer it recovers to."""
    return network.votes(vote, voters=network.validators[:1])
