"""What faulty validators send in tests: other lists, other tasks, signed with their own keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sparewatt.market.match.model import AuctionContext
from sparewatt.market.rule import BidBook, book_of, leaf_of, task_of
from sparewatt.protocol.contracts.match import BidLeaf, CommitList, RevealList, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.market.match.match_scene import VOTE_KEYS, signed_by


def signed_vote(context: AuctionContext, number: int, *, task_hash: bytes, round_: int = 0) -> SignedVote:
    vote = Vote(context.order_id, context.attempt, round_, task_hash)
    return SignedVote(vote, signed_by(VOTE_KEYS[number], vote))


def commit_list(context: AuctionContext, number: int, commits: Iterable[SignedCommit]) -> SignedCommitList:
    named = tuple(commits)
    body = CommitList(context.order_id, context.attempt, tuple(sorted({each.commit.bid_id for each in named})))
    return SignedCommitList(body, signed_by(VOTE_KEYS[number], body), named)


def reveal_list(
    context: AuctionContext, number: int, bids: Iterable[RevealedBid], lists: Iterable[SignedCommitList] = ()
) -> SignedRevealList:
    named = tuple(bids)
    body = RevealList(context.order_id, context.attempt, tuple(sorted(struct_hash(each.bid) for each in named)))
    return SignedRevealList(body, signed_by(VOTE_KEYS[number], body), named, tuple(lists))


def book_for(context: AuctionContext, bids: Iterable[RevealedBid]) -> BidBook:
    leaves = [leaf_of(context.terms, each.bid, context.profiles[each.bid.provider]) for each in bids]
    return book_of(context.order_id, leaves)


def task_for(context: AuctionContext, book: BidBook) -> Task:
    return task_of(
        book,
        attempt=context.attempt,
        policy_hash=context.policy_hash,
        snapshot_epoch=context.snapshot_epoch,
        snapshot_root=context.snapshot_root,
        stake_version=context.stake_version,
    )


def proposal_for(
    context: AuctionContext,
    number: int,
    bids: Iterable[RevealedBid],
    *,
    round_: int = 0,
    change: Callable[[Task], Task] = lambda task: task,
    leaves: tuple[BidLeaf, ...] | None = None,
) -> Proposal:
    """Of these bids, with whatever is changed in the task; the vote fits the changed task."""
    bids = tuple(bids)
    book = book_for(context, bids) if leaves is None else book_of(context.order_id, leaves)
    task = change(task_for(context, book))
    vote = signed_vote(context, number, task_hash=struct_hash(task), round_=round_)
    return Proposal(vote, task, book.leaves, bids, (), ())


def swapped(task: Task) -> Task:
    """The second best wins."""
    return replace(task, first=task.second, second=task.first)
