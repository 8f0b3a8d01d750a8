"""Proposals and votes of all rounds of a match, and the certificate that a quorum of equal votes makes.

A task is known by its hash, and the leaves by the root in it; so of a proposal only these are kept, and it does not
matter who relays it. Bids, commits and lists that came with it are kept where those of other messages are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.model import AuctionContext, QuorumCertificate
from sparewatt.market.quorum import is_quorum, is_some, leader_of_match, weight_of
from sparewatt.market.rule import BidBook, bid_id_of, book_of
from sparewatt.protocol.contracts.match import NO_LEAF, Bid, BidLeaf, Task
from sparewatt.protocol.contracts.match_messages import Proposal, SignedVote
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.message_ranges import LEAVES_END
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.typed_message import struct_hash

TAKEN = 0
ROUNDS_BEHIND = 32
"""More than an attempt has; a certificate of any of them is worth as much."""
ROUNDS_AHEAD = 8
"""A vote further ahead comes again when its round has come."""
DIFFERENT_MAX = 2
"""Votes of one validator in one round, and proposals: two prove a fault.

A further one is kept only if others worth more than a third of the stake vote for it: an honest one is among them and
votes once, so there are few.
"""


@dataclass(frozen=True, slots=True)
class ProposedTask:
    vote: SignedVote
    task: Task
    book: BidBook

    @property
    def round(self) -> int:
        return self.vote.vote.round

    @property
    def task_hash(self) -> bytes:
        return self.vote.vote.task_hash

    def bids(self) -> list[Bid]:
        """What each leaf says was bid, in the order of the leaves."""
        return [bid_of(self.task, leaf) for leaf in self.book.leaves]


def bid_of(task: Task, leaf: BidLeaf) -> Bid:
    return Bid(task.order_id, task.attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)


class Ballots:
    def __init__(self, context: AuctionContext, commits: CommitPhase) -> None:
        self._context = context
        self._commits = commits
        self._total = sum(context.weights.values())
        self._proposed: dict[int, dict[bytes, ProposedTask]] = {}
        self._spoiled: dict[int, dict[bytes, Proposal]] = {}
        self._votes: dict[int, dict[str, dict[bytes, SignedVote]]] = {}

    def leader_of(self, round_: int) -> str:
        context = self._context
        return leader_of_match(
            context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_
        ).lower()

    def take_vote(self, signed: SignedVote, *, signer: str, current: int) -> int:
        if (signed.vote.order_id, signed.vote.attempt) != (self._context.order_id, self._context.attempt):
            return MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        round_, task_hash = signed.vote.round, signed.vote.task_hash
        if not self._is_near(round_, current):
            return MessageRefusal.LATE if round_ < current else TAKEN
        votes = self._votes.setdefault(round_, {}).setdefault(signer, {})
        if len(votes) < DIFFERENT_MAX or self._some_vote_for(task_hash, round_, besides=signer):
            votes.setdefault(task_hash, signed)
        return TAKEN

    def _is_near(self, round_: int, current: int) -> bool:
        return current - ROUNDS_BEHIND <= round_ <= current + ROUNDS_AHEAD

    def _some_vote_for(self, task_hash: bytes, round_: int, *, besides: str) -> bool:
        votes = self._votes.get(round_, {})
        voters = [signer for signer, cast in votes.items() if task_hash in cast and signer != besides]
        return is_some(weight_of(voters, self._context.weights), total=self._total)

    def take_proposal(self, proposal: Proposal, *, signer: str, current: int) -> int:
        """The code of the refusal, or 0; `signer` is that of the proposal's vote."""
        vote = proposal.vote.vote
        if signer != self.leader_of(vote.round):
            return VoteRefusal.NOT_LEADER
        if code := self.take_vote(proposal.vote, signer=signer, current=current):
            return code
        known = self._proposed.get(vote.round, {})
        if vote.task_hash in known or not self._is_near(vote.round, current):
            return TAKEN
        if len(known) >= DIFFERENT_MAX and not self._some_vote_for(vote.task_hash, vote.round, besides=signer):
            return TAKEN
        proposed = read_proposal(proposal)
        if proposed is None:
            self._keep_spoiled(proposal)
            return VoteRefusal.WRONG_RESULT
        self._proposed.setdefault(vote.round, {})[vote.task_hash] = proposed
        return TAKEN

    def _keep_spoiled(self, proposal: Proposal) -> None:
        """Nobody votes for leaves that make no book, but they are the proof of their leader's fault."""
        spoiled, task_hash = self._spoiled.setdefault(proposal.vote.vote.round, {}), proposal.vote.vote.task_hash
        if len(spoiled) < DIFFERENT_MAX and task_hash not in spoiled and has_its_leaves(proposal):
            spoiled[task_hash] = Proposal(proposal.vote, proposal.task, proposal.leaves, (), (), ())

    def forget_before(self, current: int) -> None:
        """Keep the rounds around the current one."""
        for kept in (self._proposed, self._spoiled, self._votes):
            for round_ in [each for each in kept if each < current - ROUNDS_BEHIND]:
                del kept[round_]

    # what is known

    def proposed(self, round_: int) -> tuple[ProposedTask, ...]:
        return tuple(self._proposed.get(round_, {}).values())

    def all_proposed(self) -> Iterator[ProposedTask]:
        for round_ in sorted(self._proposed):
            yield from self._proposed[round_].values()

    def spoiled(self) -> Iterator[Proposal]:
        """What leaders signed that is no result: leaves out of order, two of one provider, candidates that are none."""
        for round_ in sorted(self._spoiled):
            yield from self._spoiled[round_].values()

    def votes(self) -> Iterator[SignedVote]:
        for round_ in sorted(self._votes):
            for signer in sorted(self._votes[round_]):
                yield from self._votes[round_][signer].values()

    def votes_for(self, proposed: ProposedTask) -> dict[str, SignedVote]:
        """By signer, ascending."""
        votes = self._votes.get(proposed.round, {})
        return {signer: votes[signer][proposed.task_hash] for signer in sorted(votes)
                if proposed.task_hash in votes[signer]}  # fmt: skip

    def certificate(self) -> tuple[ProposedTask, QuorumCertificate] | None:
        """Of the first round that has one."""
        for proposed in self.all_proposed():
            if not has_context(self._context, proposed.task):
                continue  # voted for on a chain that is no more: the contract refuses it
            votes = self.votes_for(proposed)
            if is_quorum(weight_of(votes, self._context.weights), total=self._total):
                found = self._certificate(proposed, votes)
                if found is not None:
                    return proposed, found
        return None

    def _certificate(self, proposed: ProposedTask, votes: dict[str, SignedVote]) -> QuorumCertificate | None:
        """None while a candidate's commit is not known here."""
        task, book = proposed.task, proposed.book
        places = [place for place in (task.first, task.second, task.third) if place != NO_LEAF]
        leaves = [book.leaves[place] for place in places]
        commits = [self._commits.commit_of(bid_id_of(bid_of(task, leaf)), leaf.provider.lower()) for leaf in leaves]
        known = tuple(commit for commit in commits if commit is not None)
        if len(known) < len(places):
            return None
        return QuorumCertificate(
            task=task,
            round=proposed.round,
            terms=self._context.terms,
            leaves=tuple(leaves),
            paths=tuple(book.tree.path(place) for place in places),
            commits=known,
            votes=tuple(votes.values()),
            signers=tuple(votes),
        )


def has_context(context: AuctionContext, task: Task) -> bool:
    """Whether a task is about what the chain says now: a reorganisation may have changed the order's snapshot."""
    return (
        task.order_id == context.order_id
        and task.attempt == context.attempt
        and task.policy_hash == context.policy_hash
        and task.snapshot_epoch == context.snapshot_epoch
        and task.snapshot_root == context.snapshot_root
        and task.stake_version == context.stake_version
    )


def has_its_leaves(proposal: Proposal) -> bool:
    """Whether the vote is for the task, and the leaves, as they stand, hash to its root."""
    task = proposal.task
    if len(proposal.leaves) >= LEAVES_END or len(proposal.leaves) != task.bid_count:
        return False
    try:
        root = merkle_tree([struct_hash(leaf) for leaf in proposal.leaves]).root
        return root == task.bid_root and struct_hash(task) == proposal.vote.vote.task_hash
    except ValueError:  # a member does not fit its type
        return False


def read_proposal(proposal: Proposal) -> ProposedTask | None:
    """None if the vote is not for the task, or the leaves are not those of its root: then a relay has changed it."""
    task = proposal.task
    if len(proposal.leaves) >= LEAVES_END or len(proposal.leaves) != task.bid_count:
        return None
    try:
        book = book_of(task.order_id, proposal.leaves)
        task_hash = struct_hash(task)
    except (InvalidField, ValueError):
        return None
    if book.tree.root != task.bid_root or task_hash != proposal.vote.vote.task_hash:
        return None
    if any(place != NO_LEAF and place >= task.bid_count for place in (task.first, task.second, task.third)):
        return None
    return ProposedTask(proposal.vote, task, book)
