"""Faulty validators. Each holds the honest machine and bends what leaves it, signed with its own key."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.market.match.model import MatchOutput, MatchStage
from sparewatt.market.quorum import leader_of_match
from sparewatt.market.rule import bid_id_of, book_of, leaf_of, task_of
from sparewatt.protocol.contracts.match import NO_LEAF, Bid, BidLeaf, CommitList, RevealList, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    Proposal,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
    decode_message,
    encode_message,
)
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, message_digest, struct_hash
from tests.market_network.happenings import Happening
from tests.market_network.scenario import Lie
from tests.market_network.validators import SimulatedValidator

if TYPE_CHECKING:
    from tests.market_network.world import World

ROUNDS_USURPED = 6


class LyingValidator(SimulatedValidator):
    def __init__(self, world: World, number: int, key: SigningKey, lie: Lie) -> None:
        super().__init__(world, number, key)
        self.lie = lie
        self._rng = random.Random(f"liar {world.scenario.seed} {number}")
        self._bent: dict[tuple[int, bool], MatchMessage] = {}
        self._kept: list[MatchMessage] = []
        self._usurped: set[int] = set()
        self._pool = EvidencePool(world.context)

    @property
    def is_honest(self) -> bool:
        return False

    def see_order(self) -> None:
        if self.lie is not Lie.SILENT:
            super().see_order()
        else:
            self._lied()

    def lists(self) -> tuple[object, list[SignedCommitList | SignedRevealList]]:
        version, lists = super().lists()
        shown = [self._bend(each, other=True) for each in lists]
        for each in shown:
            self.world.watch.told(each)
        return version, [each for each in shown if isinstance(each, SignedCommitList | SignedRevealList)]

    def deliver(self, message: MatchMessage, sender: int | None) -> MatchOutput | None:
        if self.lie is Lie.SLOW:
            delay = self._rng.randrange(100, 2_000)
            self._lied()
            self.world.timeline.after(delay, lambda: self._deliver_late(message, sender))
            return None
        output = super().deliver(message, sender)
        if self.lie in {Lie.EQUIVOCATING, Lie.WRONG_RESULT}:
            self._vote_for_all(message)
            self._usurp(message)
        return output

    def _deliver_late(self, message: MatchMessage, sender: int | None) -> None:
        SimulatedValidator.deliver(self, message, sender)

    def send(self, message: MatchMessage, peer: int) -> None:
        if self.lie is Lie.SPLITTING and not isinstance(message, SignedCommitList):
            return
        bent = self._bend(message, other=peer % 2 == 0)
        if bent is not message:
            self._lied()
        self.world.watch.told(bent)
        self.world.send(self.number, peer, bent)

    def _bend(self, message: MatchMessage, *, other: bool) -> MatchMessage:
        """The same lie each time; one that equivocates has another for every second peer."""
        two_faced = self.lie in {Lie.EQUIVOCATING, Lie.SPLITTING}
        if self.lie is Lie.SLOW or (two_faced and not other):
            return message
        known = (id(message), other and two_faced)
        if known not in self._bent:
            self._kept.append(message)
            bent = self._bent_of(message)
            self._bent[known] = bent if _is_readable(bent) else message
        return self._bent[known]

    def _bent_of(self, message: MatchMessage) -> MatchMessage:
        bends_lists = self.lie in {Lie.EQUIVOCATING, Lie.OMITTING, Lie.SPLITTING}
        match message:
            case SignedCommitList() if bends_lists and self._is_mine(message.list, message.signature):
                ids = self._without_one(message.list.bid_ids)
                signed = CommitList(message.list.order_id, message.list.attempt, ids)
                commits = tuple(each for each in message.commits if each.commit.bid_id in ids)
                return SignedCommitList(signed, self._signed(signed), commits)
            case SignedRevealList() if bends_lists and self._is_mine(message.list, message.signature):
                ids = self._without_one(message.list.bid_ids)
                revealed = RevealList(message.list.order_id, message.list.attempt, ids)
                bids = tuple(each for each in message.bids if bid_id_of(each.bid) in ids)
                return SignedRevealList(revealed, self._signed(revealed), bids, message.commit_lists)
            case Proposal():
                return self._false_proposal(message)
            case SignedVote() if self.lie is Lie.EQUIVOCATING:
                return self._vote(message.vote.round, struct_hash(message.vote))
            case _:
                return message

    def _lied(self) -> None:
        self.world.watch.happened[self.lie] += 1

    def _is_mine(self, message: TypedMessage, signature: bytes) -> bool:
        return self._signed(message) == signature

    def _without_one(self, ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if self.lie is Lie.SPLITTING:
            return ()
        gone = self._rng.randrange(len(ids) + 1) if ids else 0
        return tuple(each for i, each in enumerate(ids) if i != gone)

    def _false_proposal(self, honest: Proposal) -> Proposal:
        task, leaves = self._false_task(honest)
        return replace(honest, vote=self._vote(honest.vote.vote.round, struct_hash(task)), task=task, leaves=leaves)

    def _false_task(self, honest: Proposal) -> tuple[Task, tuple[BidLeaf, ...]]:
        """Another winner, a missing bid, a wrong price or a wrong score, with a root that fits."""
        leaves = list(honest.leaves)
        kind = self._rng.randrange(5) if self.lie is Lie.WRONG_RESULT and leaves else 5
        if kind == 0:
            return replace(honest.task, first=honest.task.second, second=honest.task.first), honest.leaves
        if kind == 1:
            return replace(honest.task, first=NO_LEAF, second=NO_LEAF, third=NO_LEAF), honest.leaves
        place = self._rng.randrange(len(leaves)) if leaves else 0
        if kind == 2:
            wrong = replace(leaves[place], score=1)
            return self._retold(honest.task, [*leaves[:place], wrong, *leaves[place + 1 :]])
        if kind == 3:
            leaf, context = leaves[place], self.world.context
            bid = Bid(context.order_id, context.attempt, leaf.provider, 1, leaf.terms_hash, leaf.salt)
            wrong = leaf_of(context.terms, bid, context.profiles[leaf.provider.lower()])
            return self._retold(honest.task, [*leaves[:place], wrong, *leaves[place + 1 :]])
        if kind == 4:
            turned = tuple(reversed(leaves))
            root = merkle_tree([struct_hash(leaf) for leaf in turned]).root
            return replace(honest.task, bid_root=root), turned
        return self._retold(honest.task, leaves[:place] + leaves[place + 1 :])

    def _retold(self, task: Task, leaves: list[BidLeaf]) -> tuple[Task, tuple[BidLeaf, ...]]:
        book = book_of(task.order_id, leaves)
        told = task_of(
            book,
            attempt=task.attempt,
            policy_hash=task.policy_hash,
            snapshot_epoch=task.snapshot_epoch,
            snapshot_root=task.snapshot_root,
            stake_version=task.stake_version,
        )
        return told, book.leaves

    def _vote_for_all(self, message: MatchMessage) -> None:
        """It signs whatever is proposed, in every round."""
        if isinstance(message, Proposal):
            vote = self._vote(message.vote.vote.round, message.vote.vote.task_hash)
            self._tell_all(vote)
            self.world.watch.happened[Happening.BLIND_VOTE] += 1

    def _usurp(self, message: MatchMessage) -> None:
        """It proposes a true result in a round that another leads, as soon as it can."""
        self._pool.add(message)
        if self.match is None or self.match.phase is not MatchStage.VOTE or self.match.round in self._usurped:
            return
        context, round_ = self.world.context, self.match.round
        self._usurped.add(round_)
        leader = leader_of_match(context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_)
        if leader != self.address and len(self._usurped) <= ROUNDS_USURPED:
            self._tell_all(self._proposal(round_))
            self.world.watch.happened[Happening.USURPED] += 1

    def _proposal(self, round_: int) -> Proposal:
        context, pool = self.world.context, self._pool
        own = [bid_id for bid_id in pool.bids if pool.is_certified(bid_id)]
        bids = {pool.bids[bid_id].bid.provider: pool.bids[bid_id] for bid_id in own}
        profiles = context.profiles
        book = book_of(
            context.order_id, [leaf_of(context.terms, each.bid, profiles[name]) for name, each in bids.items()]
        )
        task = task_of(
            book,
            attempt=context.attempt,
            policy_hash=context.policy_hash,
            snapshot_epoch=context.snapshot_epoch,
            snapshot_root=context.snapshot_root,
            stake_version=context.stake_version,
        )
        commits = tuple(signed for each in pool.commits.values() for signed in each.values())
        lists = tuple(signed for each in pool.commit_lists.values() for signed in each.values())
        return Proposal(self._vote(round_, struct_hash(task)), task, book.leaves, tuple(bids.values()), commits, lists)

    def _tell_all(self, message: MatchMessage) -> None:
        self.world.watch.told(message)
        for peer in range(len(self.world.validators)):
            if peer != self.number:
                self.world.send(self.number, peer, message)

    def _vote(self, round_: int, task_hash: bytes) -> SignedVote:
        vote = Vote(self.world.context.order_id, self.world.context.attempt, round_, task_hash)
        return SignedVote(vote, self._signed(vote))

    def _signed(self, message: TypedMessage) -> bytes:
        return self.key.sign(message_digest(self.world.context.domain, message))


def _is_readable(message: MatchMessage) -> bool:
    """What is out of range does not get past the receiver's reader, whoever signed it."""
    try:
        decode_message(encode_message(message))
    except InvalidField:
        return False
    return True
