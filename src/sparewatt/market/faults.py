"""Faults in the match of an order, proven from public data: who, what, and the call that proves it on chain.

Anyone can collect the data, from one validator or all. A fault is named here only if the contracts punish it with the
arguments given; a key that follows the protocol appears in none, whatever others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.evidence_pool import EvidencePool, KnownTask
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.quorum import is_quorum, weight_of
from sparewatt.market.rule import leaf_of, snapshot_tree, tie_break
from sparewatt.market.snapshots.model import SnapshotDoubleSign
from sparewatt.protocol.contracts.match import (
    NO_LEAF,
    NO_PROVIDER,
    Bid,
    BidLeaf,
    CertificateRecord,
    Profile,
    Task,
    uint256_word,
)
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedCommitList, SignedRevealList, SignedVote
from sparewatt.protocol.contracts.merkle import MerkleTree
from sparewatt.protocol.contracts.reasons import BidStatus
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash

VOTES_MAX = 32
"""In one call; more validators than that have no weight."""
DISPUTE, DISPUTE_BOOK = "dispute", "dispute_book"


class MarketFault(IntEnum):
    """As the contracts number them."""

    DOUBLE_SIGN = 1
    LEAF = 2
    RANK = 3
    ORDER = 4
    OMISSION = 5
    SILENCE = 6
    UNREVEALED = 7
    TWO_COMMITS = 8


class DoubleSigned(IntEnum):
    """What a validator signs once, as `prove_double_sign` numbers it."""

    COMMIT_LIST = 0
    REVEAL_LIST = 1
    VOTE = 2
    SNAPSHOT = 3


@dataclass(frozen=True, slots=True)
class ProvenFault:
    fault: MarketFault
    culprits: tuple[str, ...]
    """Vote keys, or one provider."""
    contract: str
    function: str
    arguments: tuple[Any, ...]
    why: str


HistoryIndices = Mapping[str, int]
"""By vote key: where its weight at the order's stake version stands in its history."""

_EMPTY_LEAF = BidLeaf(NO_PROVIDER, 0, bytes(32), bytes(32), 0, 0, 0, 0, 0)
_EMPTY_PROFILE = Profile(NO_PROVIDER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
_NOWHERE = (_EMPTY_LEAF.values(), 0, ())


def find_faults(
    pool: EvidencePool, *, indices: HistoryIndices, accepted: CertificateRecord | None = None
) -> tuple[ProvenFault, ...]:
    """Every fault that the pool proves. Bidders that did not reveal need `accepted`, what the chain recorded."""
    found = [*_double_signs(pool, indices), *_two_commits(pool)]
    for task_hash, known in sorted(pool.tasks.items()):
        if known.task.stake_version != pool.context.stake_version:
            continue  # no chain state decides by it, and contracts do not hear it
        for round_, votes in pool.voters(task_hash).items():
            found += _wrong_votes(pool, known, round_, votes, indices)
    if accepted is not None:
        found += _unrevealed(pool, accepted, indices)
    return tuple(found)


def silence(
    pool: EvidencePool, task: Task, accepted: CertificateRecord, *, indices: HistoryIndices
) -> ProvenFault | None:
    """For when a book was demanded and not published in time. None without a vote of the certificate."""
    votes = pool.voters(struct_hash(task)).get(accepted.round, {})
    if not votes:
        return None
    arguments = (task.values(), accepted.values(), _vote_values(votes, indices))
    why = "The leaves of the accepted task were demanded and not published."
    return ProvenFault(MarketFault.SILENCE, tuple(sorted(votes)), DISPUTE_BOOK, "punish_silence", arguments, why)


def snapshot_double_sign(fault: SnapshotDoubleSign, *, version: int, history_index: int) -> ProvenFault:
    """`version` is a stake version of the time in which the snapshot was signed."""
    (words_a, signature_a), (words_b, signature_b) = (_snapshot_words(each) for each in (fault.first, fault.second))
    head = int(DoubleSigned.SNAPSHOT), words_a, signature_a, words_b, signature_b
    why = "It signed two different snapshots in one round of an epoch."
    arguments = (*head, version, history_index)
    return ProvenFault(MarketFault.DOUBLE_SIGN, (fault.signer,), DISPUTE, "prove_double_sign", arguments, why)


def _snapshot_words(signed: SignedSnapshot) -> tuple[list[bytes], bytes]:
    each = signed.snapshot
    numbers = [uint256_word(each.epoch), uint256_word(each.round)]
    return [*numbers, each.root, uint256_word(each.count), each.inputs_hash], signed.signature


def _double_signs(pool: EvidencePool, indices: HistoryIndices) -> Iterator[ProvenFault]:
    for kind, signer, pair in _signed_twice(pool):
        (words_a, signature_a), (words_b, signature_b) = pair
        head = int(kind), words_a, signature_a, words_b, signature_b
        arguments = (*head, pool.context.stake_version, indices[signer])
        why = f"It signed two different messages of the kind {kind.name} where there is one."
        yield ProvenFault(MarketFault.DOUBLE_SIGN, (signer,), DISPUTE, "prove_double_sign", arguments, why)


def _signed_twice(pool: EvidencePool) -> Iterator[tuple[DoubleSigned, str, list[tuple[list[bytes], bytes]]]]:
    """Each occasion with the words and signatures of two messages."""
    for signer, commits in sorted(pool.commit_lists.items()):
        if len(commits) > 1:
            yield DoubleSigned.COMMIT_LIST, signer, [_list_words(each) for _, each in sorted(commits.items())[:2]]
    for signer, reveals in sorted(pool.reveal_lists.items()):
        if len(reveals) > 1:
            yield DoubleSigned.REVEAL_LIST, signer, [_list_words(each) for _, each in sorted(reveals.items())[:2]]
    for (_, signer), votes in sorted(pool.votes.items()):
        if len(votes) > 1:
            yield DoubleSigned.VOTE, signer, [_vote_words(each) for _, each in sorted(votes.items())[:2]]


def _list_words(signed: SignedCommitList | SignedRevealList) -> tuple[list[bytes], bytes]:
    each = signed.list
    return [each.order_id, uint256_word(each.attempt), keccak256(b"".join(each.bid_ids))], signed.signature


def _vote_words(signed: SignedVote) -> tuple[list[bytes], bytes]:
    vote = signed.vote
    return [vote.order_id, uint256_word(vote.attempt), uint256_word(vote.round), vote.task_hash], signed.signature


def _two_commits(pool: EvidencePool) -> Iterator[ProvenFault]:
    for provider, commits in sorted(pool.commits.items()):
        if len(commits) > 1:
            first, second = (commits[bid_id] for bid_id in sorted(commits)[:2])
            ids = (first.commit.bid_id, second.commit.bid_id)
            arguments = (
                pool.context.order_id, pool.context.attempt, provider, ids, first.signature, second.signature
            )  # fmt: skip
            why = "It signed commits for two bids in one attempt."
            yield ProvenFault(MarketFault.TWO_COMMITS, (provider,), DISPUTE_BOOK, "prove_two_commits", arguments, why)


def _wrong_votes(
    pool: EvidencePool, known: KnownTask, round_: int, votes: Mapping[str, SignedVote], indices: HistoryIndices
) -> Iterator[ProvenFault]:
    """At most one of each kind and voter: a fault is punished once per attempt."""
    head = known.task.values(), round_, _vote_values(votes, indices)
    voters = tuple(sorted(votes))
    for fault, function, shown in (
        (MarketFault.ORDER, "challenge_order", _unordered(known)),
        (MarketFault.LEAF, "challenge_leaf", _false_leaf(pool.context, known)),
        (MarketFault.RANK, "challenge_rank", _wrong_rank(known)),
    ):
        if shown is not None:
            arguments, why = shown
            yield ProvenFault(fault, voters, DISPUTE, function, (*head, *arguments), why)
    for voter, vote in sorted(votes.items()):
        if (omitted := _omission(pool, known, voter)) is not None:
            arguments, why = omitted
            shown_vote = (vote.signature, indices[voter])
            called = (known.task.values(), round_, shown_vote, *arguments)
            yield ProvenFault(MarketFault.OMISSION, (voter,), DISPUTE, "challenge_omission", called, why)


def _vote_values(votes: Mapping[str, SignedVote], indices: HistoryIndices) -> list[tuple[bytes, int]]:
    return [(vote.signature, indices[signer]) for signer, vote in sorted(votes.items())[:VOTES_MAX]]


_Shown = tuple[tuple[Any, ...], str] | None
"""The last arguments of a challenge and the reason, or None: no fault."""


def _unordered(known: KnownTask) -> _Shown:
    providers = [int(leaf.provider, 16) for leaf in known.leaves]
    for i in range(len(providers) - 1):
        if providers[i] >= providers[i + 1]:
            return (_placed(known, i), _placed(known, i + 1)), f"Leaves {i} and {i + 1} are not in ascending order."
    return None


def _false_leaf(context: AuctionContext, known: KnownTask) -> _Shown:
    if known.task.policy_hash != context.policy_hash or known.task.snapshot_root != context.snapshot_root:
        return None
    profiles, tree = snapshot_tree(context.profiles.values())
    for index, leaf in enumerate(known.leaves):
        place = next((i for i, each in enumerate(profiles) if _same(each.provider, leaf.provider)), None)
        if place is None:
            shown = [_placed_profile(profiles, tree, i) for i in _spots([each.provider for each in profiles], leaf)]
        elif not _is_true(context, leaf, profiles[place]):
            shown = [_placed_profile(profiles, tree, place)]
        else:
            continue
        why = f"Leaf {index} is of a provider that the snapshot has not." if place is None else (
            f"Leaf {index} does not follow from its provider's profile."
        )  # fmt: skip
        return (context.terms.values(), _placed(known, index), shown, place is None), why
    return None


def _is_true(context: AuctionContext, leaf: BidLeaf, profile: Profile) -> bool:
    bid = Bid(context.order_id, context.attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)
    try:
        return leaf_of(context.terms, bid, profile) == leaf
    except InvalidField:
        return False


def _wrong_rank(known: KnownTask) -> _Shown:
    task = known.task
    slots = (task.first, task.second, task.third)
    seed = keccak256(task.order_id + task.bid_root)
    eligible = [i for i, leaf in enumerate(known.leaves) if leaf.status == BidStatus.ELIGIBLE]
    ranks = {i: (known.leaves[i].score, tie_break(seed, known.leaves[i].provider)) for i in eligible}
    for slot, index in enumerate(slots):
        before = slots[:slot]
        if index != NO_LEAF and (index >= len(known.leaves) or index in before):
            return (slot, _NOWHERE, _NOWHERE), f"Candidate {slot} is no leaf of the tree, or is listed twice."
        if index != NO_LEAF and index not in ranks:
            return (slot, _NOWHERE, _placed(known, index)), f"Candidate {slot} is not eligible."
        rest = [i for i in eligible if i not in before and (index == NO_LEAF or ranks[i] < ranks[index])]
        if rest:
            best = min(rest, key=lambda i: ranks[i])
            shown = _NOWHERE if index == NO_LEAF else _placed(known, index)
            why = f"Leaf {best} is eligible, better than candidate {slot}, and not before it."
            return (slot, _placed(known, best), shown), why
    return None


def _omission(pool: EvidencePool, known: KnownTask, voter: str) -> _Shown:
    """A bid of the voter's own reveal list that is not in the tree it voted for."""
    there = known.bid_ids()
    for _, signed in sorted(pool.reveal_lists.get(voter, {}).items()):
        for bid_id in signed.list.bid_ids:
            revealed = pool.bids.get(bid_id)
            if bid_id in there or revealed is None:
                continue
            spots = _spots_of_bid(known, revealed.bid.provider)
            arguments = (_as_leaf(revealed).values(), signed.list.bid_ids, signed.signature, spots)
            return arguments, f"Its reveal list names a bid of {revealed.bid.provider} that its vote leaves out."
    return None


def _spots_of_bid(known: KnownTask, provider: str) -> list[tuple[Any, ...]]:
    """The provider's leaf with another bid, or the leaves next to where its own would be."""
    for index, leaf in enumerate(known.leaves):
        if _same(leaf.provider, provider):
            return [_placed(known, index)]
    absent = _EMPTY_LEAF if provider == NO_PROVIDER else BidLeaf(provider, *_EMPTY_LEAF.values()[1:])
    return [_placed(known, i) for i in _spots([leaf.provider for leaf in known.leaves], absent)]


def _unrevealed(pool: EvidencePool, accepted: CertificateRecord, indices: HistoryIndices) -> Iterator[ProvenFault]:
    known = pool.tasks.get(accepted.task_hash)
    if known is None:
        return
    weights = pool.context.weights
    bidders = {leaf.provider.lower() for leaf in known.leaves}
    for provider, commits in sorted(pool.commits.items()):
        for bid_id, commit in sorted(commits.items()):
            listers = pool.listers(bid_id)
            if provider in bidders or not is_quorum(weight_of(listers, weights), total=sum(weights.values())):
                continue
            lists = [(each.list.bid_ids, each.signature, indices[signer]) for signer, each in sorted(listers.items())]
            spots = _spots_of_bid(known, provider)
            head = known.task.values(), accepted.values(), provider
            arguments = (*head, bid_id, commit.signature, lists[:VOTES_MAX], spots)
            why = "A quorum listed its commit, and no bid of it is in the accepted task."
            yield ProvenFault(MarketFault.UNREVEALED, (provider,), DISPUTE_BOOK, "forfeit_bid", arguments, why)


def _as_leaf(revealed: RevealedBid) -> BidLeaf:
    """Only the fields that a bidder signs."""
    bid = revealed.bid
    return BidLeaf(bid.provider, bid.price_uusd, bid.terms_hash, bid.salt, 0, 0, 0, 0, 0)


def _spots(providers: Sequence[str], leaf: BidLeaf) -> list[int]:
    """Indices of the neighbours that show a provider absent: two, one at an end of the tree, none in an empty one."""
    wanted = int(leaf.provider, 16)
    place = sum(int(provider, 16) < wanted for provider in providers)
    width = 1 << max(len(providers) - 1, 0).bit_length()
    if not providers:
        return []
    if place == 0:
        return [0]
    return [i for i in (place - 1, place) if i < width]


def _placed(known: KnownTask, index: int) -> tuple[Any, ...]:
    leaf = known.leaves[index] if index < len(known.leaves) else _EMPTY_LEAF
    return leaf.values(), index, known.tree.path(index)


def _placed_profile(profiles: Sequence[Profile], tree: MerkleTree, index: int) -> tuple[Any, ...]:
    profile = profiles[index] if index < len(profiles) else _EMPTY_PROFILE
    return profile.values(), index, tree.path(index)


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()
