"""What was signed in one attempt, collected from anyone's messages and sorted by who signed it.

A pool believes nothing: a message counts by its signature, a bid by the hash that its provider committed to, and the
leaves of a task by its root. What does not fit the attempt is left out. Replays and proofs of faults read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from sparewatt.market.match.model import AuctionContext
from sparewatt.market.quorum import is_quorum, weight_of
from sparewatt.market.rule import bid_id_of
from sparewatt.protocol.contracts.match import Bid, BidCommit, BidLeaf, CommitList, Decline, RevealList, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    MissingBids,
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.contracts.merkle import MerkleTree, merkle_tree
from sparewatt.protocol.signing import BadSignature, recover_address
from sparewatt.protocol.typed_message import TypedMessage, message_digest, struct_hash

_List = TypeVar("_List", SignedCommitList, SignedRevealList)


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task with all its leaves, which hash to its root."""

    task: Task
    leaves: tuple[BidLeaf, ...]
    tree: MerkleTree

    def bid_ids(self) -> dict[bytes, int]:
        """Where each bid's leaf is."""
        return {leaf_bid_id(self.task, leaf): index for index, leaf in enumerate(self.leaves)}


@dataclass
class EvidencePool:
    """One entry per signer and different message: two entries where there may be one are a fault."""

    context: AuctionContext
    commits: dict[str, dict[bytes, SignedCommit]] = field(default_factory=dict)
    """By provider and bid id."""
    declines: dict[str, SignedDecline] = field(default_factory=dict)
    """By provider: the first."""
    commit_lists: dict[str, dict[bytes, SignedCommitList]] = field(default_factory=dict)
    """By vote key and hash."""
    reveal_lists: dict[str, dict[bytes, SignedRevealList]] = field(default_factory=dict)
    votes: dict[tuple[int, str], dict[bytes, SignedVote]] = field(default_factory=dict)
    """By round and vote key, then by the hash of the task."""
    bids: dict[bytes, RevealedBid] = field(default_factory=dict)
    tasks: dict[bytes, KnownTask] = field(default_factory=dict)
    """By hash."""

    def add_all(self, messages: Iterable[MatchMessage]) -> EvidencePool:
        for message in messages:
            self.add(message)
        return self

    def add(self, message: MatchMessage) -> None:
        """Everything that the message carries. A status carries nothing signed."""
        match message:
            case SignedDecline():
                self._add_decline(message)
            case SignedCommit():
                self._add_commit(message)
            case SignedCommitList():
                self._add_list(message, self.commit_lists)
                self.add_all(message.commits)
            case RevealedBid():
                self._add_bid(message)
            case SignedRevealList():
                self._add_list(message, self.reveal_lists)
                self.add_all(message.bids)
                self.add_all(message.commit_lists)
            case SignedVote():
                self._add_vote(message)
            case Proposal():
                self._add_vote(message.vote)
                self.add_task(message.task, message.leaves)
                self.add_all(message.bids)
                self.add_all(message.commits)
                self.add_all(message.commit_lists)
            case MissingBids():
                self.add(message.reveal_list)

    def add_task(self, task: Task, leaves: tuple[BidLeaf, ...]) -> None:
        if not self._fits(task) or len(leaves) != task.bid_count or (known := struct_hash(task)) in self.tasks:
            return
        tree = merkle_tree([struct_hash(leaf) for leaf in leaves])
        if tree.root == task.bid_root:
            self.tasks[known] = KnownTask(task, leaves, tree)

    def listers(self, bid_id: bytes) -> dict[str, SignedCommitList]:
        """The validators that signed at least one commit list naming a bid, each with the first such list."""
        named: dict[str, SignedCommitList] = {}
        for signer, lists in self.commit_lists.items():
            for _, signed in sorted(lists.items()):
                if bid_id in signed.list.bid_ids:
                    named.setdefault(signer, signed)
        return named

    def is_certified(self, bid_id: bytes) -> bool:
        weights = self.context.weights
        return is_quorum(weight_of(self.listers(bid_id), weights), total=sum(weights.values()))

    def voters(self, task_hash: bytes) -> dict[int, dict[str, SignedVote]]:
        """Who voted for a task, by round and vote key."""
        found: dict[int, dict[str, SignedVote]] = {}
        for (round_, signer), votes in sorted(self.votes.items()):
            if task_hash in votes:
                found.setdefault(round_, {})[signer] = votes[task_hash]
        return found

    def certified_tasks(self) -> dict[tuple[int, bytes], tuple[str, ...]]:
        """The tasks with a quorum of votes, by round and hash, and their voters."""
        weights = self.context.weights
        found: dict[tuple[int, bytes], tuple[str, ...]] = {}
        for task_hash in sorted({known for votes in self.votes.values() for known in votes}):
            for round_, voters in self.voters(task_hash).items():
                if is_quorum(weight_of(voters, weights), total=sum(weights.values())):
                    found[round_, task_hash] = tuple(voters)
        return found

    def _add_commit(self, signed: SignedCommit) -> None:
        commit = signed.commit
        provider = commit.provider.lower()
        node_key = self.context.node_keys.get(provider)
        if commit.bid_id in self.commits.get(provider, {}) or not self._fits(commit):
            return
        if self._signer(commit, signed.signature) == node_key:
            self.commits.setdefault(provider, {})[commit.bid_id] = signed

    def _add_decline(self, signed: SignedDecline) -> None:
        provider = signed.decline.provider.lower()
        node_key = self.context.node_keys.get(provider)
        if self._fits(signed.decline) and self._signer(signed.decline, signed.signature) == node_key:
            self.declines.setdefault(provider, signed)

    def _add_list(self, signed: _List, lists: dict[str, dict[bytes, _List]]) -> None:
        if not self._fits(signed.list):
            return
        signer, hashed = self._signer(signed.list, signed.signature), struct_hash(signed.list)
        if self.context.weights.get(signer, 0) > 0:
            lists.setdefault(signer, {}).setdefault(hashed, signed)

    def _add_vote(self, signed: SignedVote) -> None:
        vote = signed.vote
        if not self._fits(vote):
            return
        signer = self._signer(vote, signed.signature)
        if self.context.weights.get(signer, 0) > 0:
            self.votes.setdefault((vote.round, signer), {}).setdefault(vote.task_hash, signed)

    def _add_bid(self, revealed: RevealedBid) -> None:
        if self._fits(revealed.bid):
            self.bids.setdefault(bid_id_of(revealed.bid), revealed)

    def _fits(self, message: Bid | BidCommit | Decline | CommitList | RevealList | Vote | Task) -> bool:
        return (message.order_id, message.attempt) == (self.context.order_id, self.context.attempt)

    def _signer(self, message: TypedMessage, signature: bytes) -> str:
        """The vote key or node key; empty if the signature is none."""
        try:
            return recover_address(message_digest(self.context.domain, message), signature).lower()
        except (BadSignature, ValueError):  # ValueError: a member does not fit its type
            return ""


def leaf_bid_id(task: Task, leaf: BidLeaf) -> bytes:
    """The id of the bid that a leaf stands for."""
    return bid_id_of(Bid(task.order_id, task.attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt))
