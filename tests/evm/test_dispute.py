"""Every fault with a minimal proof, and for each the nearest case that is no fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.rule import BidBook, bid_id_of, book_of, snapshot_tree
from sparewatt.protocol.contracts.match import (
    NO_LEAF,
    Bid,
    BidLeaf,
    CommitList,
    ReputationSnapshot,
    RevealList,
    Task,
    Vote,
)
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order, place_order
from tests.evm.machine import refused, rolled_back, wait
from tests.evm.network import (
    ATTEMPT_S,
    CHALLENGE_S,
    INSURANCE,
    MIN_STAKE,
    SPACING_S,
    USD,
    Network,
    key,
)

PRICES = {0: 2 * USD, 1: USD, 2: 3 * USD, 3: 4 * USD}
CHALLENGER = key(71).address
EMPTY_LEAF = BidLeaf("0x" + "0" * 40, 0, bytes(32), bytes(32), 0, 0, 0, 0, 0)
NOWHERE = (EMPTY_LEAF.values(), 0, ())
COMMIT_LIST, REVEAL_LIST, VOTE, SNAPSHOT = range(4)


def placed(book: BidBook, index: int) -> tuple[Any, ...]:
    leaf = book.leaves[index] if index < len(book.leaves) else EMPTY_LEAF
    return leaf.values(), index, book.tree.path(index)


def with_leaf(order: Order, book: BidBook, index: int, **changes: Any) -> BidBook:
    leaves = [replace(leaf, **changes) if i == index else leaf for i, leaf in enumerate(book.leaves)]
    return replace(book_of(order.order_id, leaves), ranking=book.ranking)


def profile_proof(network: Network, provider: str) -> list[tuple[Any, ...]]:
    assert network.snapshot is not None
    index = next(i for i, p in enumerate(network.profiles) if p.provider == provider)
    return [(network.profiles[index].values(), index, network.snapshot.path(index))]


def accused(order: Order, task: Task, *, who: int = 1) -> tuple[Any, ...]:
    """The first arguments of a challenge: one voter."""
    return task.values(), 0, order.votes(task, voters=order.network.validators[:who])


def slashed(order: Order) -> int:
    stake: int = order.network.stakes.validator_of(order.network.validators[0].operator.address)[1]
    return MIN_STAKE - stake


def challenge_leaf(order: Order, book: BidBook, index: int, **kwargs: Any) -> None:
    leaf = book.leaves[index]
    profiles = kwargs.get("profiles", profile_proof(order.network, leaf.provider))
    voters = accused(order, order.task(book), who=kwargs.get("voters", 1))
    policy = kwargs.get("policy", order.policy).values()
    absent = kwargs.get("absent", False)
    order.network.dispute.challenge_leaf(*voters, policy, placed(book, index), profiles, absent, who=CHALLENGER)


@pytest.mark.parametrize(
    "changes",
    [
        {"uptime_ppm": 990_001},
        {"reputation_ppm": 979_999},
        {"rtt_ms": 4},
        {"status": 1, "score": 0},
        {"score": 1},
        {"price_uusd": 0},
        {"price_uusd": 2**40},
    ],
)
def test_a_false_leaf_costs_its_signer_half(order: Order, changes: dict[str, int]) -> None:
    book = with_leaf(order, order.book(PRICES), 2, **changes)
    challenge_leaf(order, book, 2)
    assert slashed(order) == MIN_STAKE // 2
    assert order.network.stakes.owed(CHALLENGER) == MIN_STAKE // 20
    assert order.network.stakes.owed(order.renter.address) == MIN_STAKE // 5
    assert order.network.stakes.owed(order.network.providers[2].address) == 0  # whom the leaf favoured
    assert order.network.stakes.owed(INSURANCE) == MIN_STAKE // 4
    with refused("ALREADY_PUNISHED"):
        challenge_leaf(order, book, 2)


def test_a_culprit_that_was_punished_does_not_shield_the_others(order: Order) -> None:
    book = with_leaf(order, order.book(PRICES), 2, score=1)
    challenge_leaf(order, book, 2)
    challenge_leaf(order, book, 2, voters=3)
    stakes = [order.network.stakes.validator_of(v.operator.address)[1] for v in order.network.validators]
    assert stakes == [MIN_STAKE // 2] * 3 + [MIN_STAKE] * 4


def test_a_true_leaf_is_no_fault(order: Order) -> None:
    book = order.book(PRICES)
    for index in range(4):
        with refused("NO_FAULT"):
            challenge_leaf(order, book, index)


def test_a_leaf_challenge_needs_the_right_profile_policy_and_place(order: Order) -> None:
    book = with_leaf(order, order.book(PRICES), 2, score=1)
    other = profile_proof(order.network, order.network.providers[1].address)
    with refused("OTHER_PROVIDER"):
        challenge_leaf(order, book, 2, profiles=other)
    with refused("ONE_PROFILE"):
        challenge_leaf(order, book, 2, profiles=[])
    (values, index, path) = profile_proof(order.network, order.network.providers[2].address)[0]
    with refused("NOT_IN_SNAPSHOT"):
        challenge_leaf(order, book, 2, profiles=[((*values[:-1], 1), index, path)])
    with refused("WRONG_POLICY"):
        challenge_leaf(order, book, 2, policy=replace(order.policy, tiers=1))
    with refused("NO_VOTES"):
        challenge_leaf(order, book, 2, voters=0)
    task = order.task(book)
    shown = ((*book.leaves[2].values()[:-1], 2), 2, book.tree.path(2))
    with refused("NOT_IN_BIDS"):
        order.network.dispute.challenge_leaf(*accused(order, task), order.policy.values(), shown, [], True)


@pytest.mark.parametrize("place", ["middle", "start", "end", "alone", "empty"])
def test_a_bid_without_a_profile_is_a_fault_and_with_one_it_is_not(network: Network, place: str) -> None:
    """Absence is shown by two neighbours, or one at an end of the tree."""
    order = place_order(network)
    providers = network.providers
    kept = {
        "middle": [0, 1, 3, 4],
        "start": [1, 2, 3, 4],
        "end": [0, 1, 2],
        "alone": [0],
        "empty": [],
    }[place]
    missing = {"middle": 2, "start": 0, "end": 3, "alone": 1, "empty": 1}[place]
    profiles, tree = snapshot_tree([p for p in network.profiles if providers.index(by_address(network, p)) in kept])
    book = order.book({missing: USD, 4: 2 * USD})
    task = replace(order.task(book), snapshot_root=tree.root)
    spots = {"middle": [1, 2], "start": [0], "end": [2, 3], "alone": [0], "empty": []}[place]

    def spot(index: int) -> tuple[Any, ...]:
        empty = replace(network.profiles[0], provider="0x" + "0" * 40)
        return (profiles[index] if index < len(profiles) else empty).values(), index, tree.path(index)

    index = next(i for i, leaf in enumerate(book.leaves) if leaf.provider == providers[missing].address)
    shown = (order.policy.values(), placed(book, index), [spot(i) for i in spots], True)
    network.dispute.challenge_leaf(*accused(order, task), *shown)
    assert slashed(order) == MIN_STAKE // 2


def by_address(network: Network, profile: Any) -> Any:
    return next(p for p in network.providers if p.address == profile.provider)


def test_a_provider_with_a_profile_is_never_shown_absent(network: Network) -> None:
    order = place_order(network)
    book = order.book(PRICES)
    task, tree = order.task(book), network.snapshot
    assert tree is not None
    spots = [(p.values(), i, tree.path(i)) for i, p in enumerate(network.profiles)]
    padding = (replace(network.profiles[0], provider="0x" + "0" * 40).values(), 5, tree.path(5))
    for pair in [[], *[[a] for a in spots], *[[a, b] for a in [*spots, padding] for b in [*spots, padding]]]:
        with refused("NOT_ABSENT"):
            network.dispute.challenge_leaf(*accused(order, task), order.policy.values(), placed(book, 2), pair, True)


def challenge_rank(
    order: Order, task: Task, book: BidBook, *, slot: int, over: int | None, candidate: int | None
) -> None:
    over_shown = NOWHERE if over is None else placed(book, over)
    shown = NOWHERE if candidate is None else placed(book, candidate)
    order.network.dispute.challenge_rank(*accused(order, task), slot, over_shown, shown, who=CHALLENGER)


def test_passing_over_a_better_bid_is_a_fault(order: Order) -> None:
    book = order.book(PRICES)
    best, second, third, *_ = book.ranking
    task = replace(order.task(book), first=second, second=best)
    challenge_rank(order, task, book, slot=0, over=best, candidate=second)
    assert slashed(order) == MIN_STAKE // 2
    assert order.network.stakes.owed(book.leaves[best].provider) == MIN_STAKE // 5
    assert third != NO_LEAF


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_hiding_a_candidate_is_a_fault(order: Order, slot: int) -> None:
    book = order.book(PRICES)
    hidden: dict[str, Any] = {["first", "second", "third"][slot]: NO_LEAF}
    task = replace(order.task(book), **hidden)
    challenge_rank(order, task, book, slot=slot, over=book.ranking[slot], candidate=None)
    assert slashed(order) == MIN_STAKE // 2


@pytest.mark.parametrize("bend", ["ineligible", "outside", "twice"])
def test_a_candidate_that_cannot_be_one_is_a_fault(order: Order, bend: str) -> None:
    book = order.book({**PRICES, 4: 50 * USD})
    ineligible = next(i for i, leaf in enumerate(book.leaves) if leaf.status)
    index = {"ineligible": ineligible, "outside": 5, "twice": book.ranking[0]}[bend]
    challenge_rank(order, replace(order.task(book), second=index), book, slot=1, over=None, candidate=ineligible)
    assert slashed(order) == MIN_STAKE // 2


def test_an_honest_ranking_is_no_fault_whatever_is_shown(order: Order) -> None:
    book = order.book({**PRICES, 4: 50 * USD})
    task = order.task(book)
    places = [None, *range(5)]
    for slot in range(3):
        for over in places:
            for candidate in places:
                with pytest.raises(Exception, match=r"NO_FAULT|NOT_IN_BIDS|LISTED_BEFORE|NOT_THE_CANDIDATE"):
                    challenge_rank(order, task, book, slot=slot, over=over, candidate=candidate)
    with refused("UNKNOWN_SLOT"):
        challenge_rank(order, task, book, slot=3, over=0, candidate=1)
    with refused("LISTED_BEFORE"):
        challenge_rank(order, task, book, slot=1, over=book.ranking[0], candidate=book.ranking[1])
    with refused("NOT_THE_CANDIDATE"):
        challenge_rank(order, task, book, slot=0, over=book.ranking[0], candidate=book.ranking[1])


def test_leaves_out_of_order_or_twice_are_a_fault(order: Order) -> None:
    honest = order.book(PRICES)
    for leaves in ([1, 0, 2, 3], [0, 0, 1, 2]):
        shuffled = tuple(honest.leaves[i] for i in leaves)
        book = replace(honest, leaves=shuffled, tree=merkle_tree([struct_hash(leaf) for leaf in shuffled]))
        with rolled_back():
            order.network.dispute.challenge_order(*accused(order, order.task(book)), placed(book, 0), placed(book, 1))
            assert slashed(order) == MIN_STAKE // 2
            assert order.network.stakes.owed(order.renter.address) == MIN_STAKE // 5
    for i in range(3):
        with refused("NO_FAULT"):
            order.network.dispute.challenge_order(
                *accused(order, order.task(honest)), placed(honest, i), placed(honest, i + 1)
            )
    with refused("NOT_NEIGHBOURS"):
        order.network.dispute.challenge_order(*accused(order, order.task(honest)), placed(honest, 0), placed(honest, 2))


def omission(
    order: Order, voted: BidBook, named: Bid, *, ids: list[bytes] | None = None, spots: Any, lister: int = 0
) -> None:
    network, task = order.network, order.task(voted)
    listed = tuple(sorted(ids if ids is not None else [bid_id_of(named), b"\1" * 32]))
    reveal = RevealList(order.order_id, order.attempt, listed)
    signature = network.signed(network.validators[lister].vote_key, network.tasks, reveal)
    bid = replace(
        EMPTY_LEAF, provider=named.provider, price_uusd=named.price_uusd, terms_hash=named.terms_hash, salt=named.salt
    )
    vote = order.votes(task, voters=network.validators[:1])[0]
    network.dispute.challenge_omission(task.values(), 0, vote, bid.values(), listed, signature, spots, who=CHALLENGER)


def test_leaving_out_a_bid_of_ones_own_list_is_a_fault(order: Order) -> None:
    book = order.book({0: USD, 2: USD, 3: USD})
    bid = order.bid(order.network.providers[1], 5)
    omission(order, book, bid, spots=[placed(book, 0), placed(book, 1)])
    assert slashed(order) == MIN_STAKE // 2
    assert order.network.stakes.owed(bid.provider) == MIN_STAKE // 5


def test_replacing_a_bid_of_ones_own_list_is_a_fault(order: Order) -> None:
    book = order.book(PRICES)
    bid = order.bid(order.network.providers[1], 5)
    omission(order, book, bid, spots=[placed(book, 1)])
    assert slashed(order) == MIN_STAKE // 2


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_bid_absent_before_or_after_all_others_can_be_shown(order: Order, count: int, side: str) -> None:
    """After the last leaf of a full tree that leaf is enough; else the proof includes the padding next to it."""
    bidders = range(1, 1 + count) if side == "before" else range(count)
    book = order.book(dict.fromkeys(bidders, USD))
    spots = [0] if side == "before" else [count - 1, count]
    shown = [placed(book, i) for i in spots if i < len(book.tree.levels[0])] if count else []
    omitted = order.network.providers[0 if side == "before" else 4]
    omission(order, book, order.bid(omitted, 5), spots=shown)
    assert slashed(order) == MIN_STAKE // 2


def test_a_bid_that_is_there_is_not_omitted(order: Order) -> None:
    book = order.book(PRICES)
    bid = order.bid(order.network.providers[1], USD)
    with refused("NO_FAULT"):
        omission(order, book, bid, spots=[placed(book, 1)])
    for spots in ([0], [3], [0, 1], [1, 2], [2, 3], [0, 2], []):
        with refused("NOT_ABSENT"):
            omission(order, book, bid, spots=[placed(book, i) for i in spots])
    with refused("NOT_LISTED"):
        omission(order, book, bid, ids=[b"\1" * 32], spots=[placed(book, 1)])
    with refused("DIFFERENT_SIGNERS"):
        omission(order, book, bid, lister=1, spots=[placed(book, 1)])


def words(*values: bytes | int) -> list[bytes]:
    return [v if isinstance(v, bytes) else v.to_bytes(32, "big") for v in values]


def double_sign(network: Network, kind: int, messages: Any, shown: Any, *, second_signer: int = 0) -> None:
    signers = network.validators[0], network.validators[second_signer]
    a, b = (network.signed(v.vote_key, network.tasks, m) for v, m in zip(signers, messages, strict=True))
    version = network.stakes.version()
    network.dispute.prove_double_sign(kind, shown[0], a, shown[1], b, version, 0, who=CHALLENGER)


def list_words(order: Order, ids: tuple[bytes, ...]) -> list[bytes]:
    return words(order.order_id, order.attempt, keccak256(b"".join(ids)))


@pytest.mark.parametrize(("kind", "shape"), [(COMMIT_LIST, CommitList), (REVEAL_LIST, RevealList)])
def test_two_lists_for_one_attempt_are_a_fault(order: Order, kind: int, shape: Any) -> None:
    ids = [(b"\1" * 32,), (b"\1" * 32, b"\2" * 32)]
    lists = [shape(order.order_id, 0, i) for i in ids]
    shown = [list_words(order, i) for i in ids]
    double_sign(order.network, kind, lists, shown)
    assert slashed(order) == MIN_STAKE // 20
    with refused("SAME_MESSAGE"):
        double_sign(order.network, kind, lists[:1] * 2, shown[:1] * 2)


def test_two_votes_in_one_round_are_a_fault_and_in_two_rounds_they_are_not(order: Order) -> None:
    network = order.network
    votes = [Vote(order.order_id, 0, round_, bytes([n]) * 32) for round_, n in ((0, 1), (0, 2), (1, 2))]
    shown = [words(order.order_id, 0, v.round, v.task_hash) for v in votes]
    with refused("DIFFERENT_OCCASION"):
        double_sign(network, VOTE, votes[::2], shown[::2])
    with refused("DIFFERENT_SIGNERS"):
        double_sign(network, VOTE, votes[:2], shown[:2], second_signer=1)
    double_sign(network, VOTE, votes[:2], shown[:2])
    assert slashed(order) == MIN_STAKE // 20


def test_two_snapshots_in_one_round_are_a_fault_for_a_while(network: Network) -> None:
    order = place_order(network)
    shots = [ReputationSnapshot(1, 0, bytes([n]) * 32, 1, bytes(32)) for n in (1, 2)]
    shown = [words(1, 0, s.root, 1, bytes(32)) for s in shots]
    wait(CHALLENGE_S)
    with refused("TOO_LATE"):
        double_sign(network, SNAPSHOT, shots, shown)
    future = [replace(s, epoch=2) for s in shots]
    double_sign(network, SNAPSHOT, future, [words(2, 0, s.root, 1, bytes(32)) for s in future])
    assert slashed(order) == MIN_STAKE // 20
    none = [replace(s, epoch=0) for s in shots]
    with refused("UNKNOWN_EPOCH"):
        double_sign(network, SNAPSHOT, none, [words(0, 0, s.root, 1, bytes(32)) for s in none])


def test_a_snapshots_double_signer_is_judged_by_its_stake_of_that_time(network: Network) -> None:
    one, little = network.validators[0], network.stakes.version()
    wait(1)
    network.add_stake(one.operator.address, 99 * MIN_STAKE)
    one.history_index += 1
    wait(SPACING_S)
    network.post_snapshot(list(network.profiles))
    one.history_index -= 1
    shots = [ReputationSnapshot(network.epoch + 1, 0, bytes([n]) * 32, 1, bytes(32)) for n in (1, 2)]
    shown = [words(network.epoch + 1, 0, s.root, 1, bytes(32)) for s in shots]
    a, b = (network.signed(one.vote_key, network.tasks, s) for s in shots)
    with refused("WRONG_STAKE_VERSION"):
        network.dispute.prove_double_sign(SNAPSHOT, shown[0], a, shown[1], b, little, 0)
    network.dispute.prove_double_sign(SNAPSHOT, shown[0], a, shown[1], b, network.stakes.version(), 1)
    assert network.stakes.validator_of(one.operator.address)[1] == 95 * MIN_STAKE


def test_double_signing_is_shown_in_the_right_shape(order: Order) -> None:
    votes = [Vote(order.order_id, 0, 0, bytes([n]) * 32) for n in (1, 2)]
    shown = [words(order.order_id, 0, 0, v.task_hash) for v in votes]
    with refused("UNKNOWN_KIND"):
        double_sign(order.network, 4, votes, shown)
    with refused("WRONG_LENGTH"):
        double_sign(order.network, VOTE, votes, [shown[0], shown[1][:3]])


def test_evidence_counts_for_a_time_and_for_known_orders(order: Order) -> None:
    book = with_leaf(order, order.book(PRICES), 2, score=1)
    task = replace(order.task(book), order_id=b"\1" * 32)
    shown: Any = (order.policy.values(), placed(book, 2), [], True)
    with refused("UNKNOWN_ATTEMPT"):
        order.network.dispute.challenge_leaf(*accused(order, task), *shown)
    wait(ATTEMPT_S + CHALLENGE_S + 1)
    with refused("TOO_LATE"):
        challenge_leaf(order, book, 2)


def reopened(order: Order) -> None:
    """The next attempt, right after the last one ran out."""
    wait(ATTEMPT_S + 1)
    order.network.orders.expire_attempt(order.order_id)
    order.network.orders.reopen(order.order_id, order.policy.values())
    order.attempt += 1
    order.stake_version = order.network.stakes.version()


def test_each_attempt_has_a_time_of_its_own(order: Order) -> None:
    """A later attempt neither closes the time of an earlier one nor opens it again."""
    first = replace(order)
    book = with_leaf(first, first.book(PRICES), 2, score=1)
    reopened(order)
    with rolled_back():
        challenge_leaf(first, book, 2)
        assert slashed(order) == MIN_STAKE // 2
    wait(CHALLENGE_S)
    with refused("TOO_LATE"):
        challenge_leaf(first, book, 2)
    challenge_leaf(order, with_leaf(order, order.book(PRICES), 2, score=1), 2)


def test_a_culprit_does_not_report_itself_where_it_had_little_stake(order: Order) -> None:
    """Else a validator that has grown pays a share of its first stake, and is out of reach for all others."""
    network, one = order.network, order.network.validators[0]
    little = order.stake_version
    wait(1)
    network.add_stake(one.operator.address, 99 * MIN_STAKE)
    wait(1)
    grown = place_order(network)
    lists = [CommitList(grown.order_id, 0, ids) for ids in ((b"\1" * 32,), (b"\2" * 32,))]
    shown = [list_words(grown, each.bid_ids) for each in lists]
    signatures = [network.signed(one.vote_key, network.tasks, each) for each in lists]
    evidence = (COMMIT_LIST, shown[0], signatures[0], shown[1], signatures[1])
    with refused("WRONG_STAKE_VERSION"):
        network.dispute.prove_double_sign(*evidence, little, 0)
    book = with_leaf(grown, grown.book(PRICES), 2, score=1)
    dummy = replace(grown.task(book), stake_version=little)
    proof = profile_proof(network, book.leaves[2].provider)
    with refused("WRONG_STAKE_VERSION"):
        network.dispute.challenge_leaf(
            *accused(grown, dummy), grown.policy.values(), placed(book, 2), proof, False, who=CHALLENGER
        )
    network.dispute.prove_double_sign(*evidence, grown.stake_version, 1)
    assert network.stakes.validator_of(one.operator.address)[1] == 95 * MIN_STAKE


@pytest.mark.parametrize("when", ["before the order", "after the order"])
def test_a_version_of_the_same_second_does_not_decide_an_attempt(network: Network, when: str) -> None:
    """A validator with much stake takes most of it out in the second of the opening, and reports itself at the rest."""
    one, stakes = network.validators[0], network.stakes
    network.add_stake(one.operator.address, 99 * MIN_STAKE)
    wait(1)
    versions = [stakes.version(), stakes.version() + 1]
    if when == "after the order":
        order = place_order(network)
    stakes.request_unbond(99 * MIN_STAKE, who=one.operator.address)
    if when == "before the order":
        order = place_order(network)
    decides = versions.index(network.orders.stake_version_at(order.order_id, 0))
    assert decides == (when == "before the order")
    book = with_leaf(order, order.book(PRICES), 2, score=1)
    proof = profile_proof(network, book.leaves[2].provider)
    shown = (order.policy.values(), placed(book, 2), proof, False)

    def reports(which: int) -> None:
        task = replace(order.task(book), stake_version=versions[which])
        votes = order.votes(task, voters=[replace(one, history_index=one.history_index + 1 + which)])
        network.dispute.challenge_leaf(task.values(), 0, votes, *shown, who=CHALLENGER)

    with refused("WRONG_STAKE_VERSION"):
        reports(1 - decides)
    reports(decides)
    assert stakes.owed(CHALLENGER) == (100, 1)[decides] * MIN_STAKE // 2 // 10
