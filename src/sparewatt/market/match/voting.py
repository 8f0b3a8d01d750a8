"""What a leader proposes, and whether a validator votes for it. Pure functions over what the validator holds."""

from __future__ import annotations

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.ballots import ProposedTask, has_context
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.match.reveal_phase import RevealPhase
from sparewatt.market.rule import BidBook, bid_id_of, book_of, leaf_of, task_of
from sparewatt.protocol.contracts.match import Bid, Task
from sparewatt.protocol.contracts.reasons import VoteRefusal

VOTED = 0


def own_proposal(context: AuctionContext, reveals: RevealPhase) -> tuple[Task, BidBook]:
    """Every bid that is certified and revealed here, ranked by the rule."""
    bids = [revealed.bid for revealed in reveals.bids_of(reveals.admitted())]
    book = _book(context, bids)
    return auction_task(context, book), book


def refusal_of(
    context: AuctionContext, proposed: ProposedTask, *, reveals: RevealPhase, own_bid_ids: tuple[bytes, ...]
) -> int:
    """Why a validator does not vote for the task of its round's leader, or 0.

    `own_bid_ids` are those of the validator's own reveal list: a tree without one of them is never voted for.
    """
    if not has_context(context, proposed.task):
        return VoteRefusal.WRONG_CONTEXT
    bids = proposed.bids()
    bid_ids = [bid_id_of(bid) for bid in bids]
    if not all(reveals.is_admitted(bid_id) for bid_id in bid_ids):
        return VoteRefusal.UNCERTIFIED_BID
    if not set(own_bid_ids) <= set(bid_ids):
        return VoteRefusal.MISSING_BID
    try:
        same = auction_task(context, _book(context, bids)) == proposed.task
    except InvalidField:
        same = False
    return VOTED if same else VoteRefusal.WRONG_RESULT


def _book(context: AuctionContext, bids: list[Bid]) -> BidBook:
    leaves = [leaf_of(context.terms, bid, context.profiles[bid.provider.lower()]) for bid in bids]
    return book_of(context.order_id, leaves)


def auction_task(context: AuctionContext, book: BidBook) -> Task:
    """What an auction with these bids decides."""
    return task_of(
        book,
        attempt=context.attempt,
        policy_hash=context.policy_hash,
        snapshot_epoch=context.snapshot_epoch,
        snapshot_root=context.snapshot_root,
        stake_version=context.stake_version,
    )
