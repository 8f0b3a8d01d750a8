"""The newest lease auctions for the live feed: orders and votes as the chain tells them, which are public.

Each process of a gateway follows the chain's index by itself, so nothing is shared between them.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol, get_args

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, NoChain
from sparewatt.market.chain_records import MarketState, OrderRecord, OrderState, VoteWeight
from sparewatt.market.chain_view import ChainView
from sparewatt.market.quorum import weight_of
from sparewatt.protocol.api.feed import FeedAuction
from sparewatt.protocol.api.market import OrderStateName

FEED_AUCTIONS_KEPT = 20
"""Auctions that a viewer sees; all of them are sent when one changes."""
_STATES: dict[OrderState, OrderStateName] = dict(zip(OrderState, get_args(OrderStateName), strict=True))


class AuctionSource(Protocol):
    """Implemented by MarketIndex."""

    def view(self) -> ChainView: ...


class AuctionFeed:
    def __init__(self, market: AuctionSource) -> None:
        self.market = market
        self._records: list[OrderRecord] = []
        self._shown: list[FeedAuction] = []

    def newest(self) -> list[FeedAuction]:
        """The latest first. It is the same list object as before if nothing changed: a look costs next to nothing."""
        try:
            state = self.market.view().latest
        except (NoChain, ChainUnavailable, ContractsOutdated):
            state = MarketState()
        records = list(islice(reversed(state.orders.values()), FEED_AUCTIONS_KEPT))
        if records != self._records:
            self._records = records
            self._shown = [feed_auction(state, order) for order in records]
        return self._shown


def feed_auction(state: MarketState, order: OrderRecord) -> FeedAuction:
    certificate, voters = order.certificate, voters_of(state, order)
    weights = {voter.vote_key: voter.weight for voter in voters}
    signers = [key for key in certificate.signers if key in weights] if certificate is not None else []
    return FeedAuction(
        id=order.order_id,
        at=order.opened_at[order.attempt],
        attempt=order.attempt,
        state=_STATES[order.state],
        gpus=order.terms.gpu_units,
        commit_ms=order.terms.commit_ms,
        reveal_ms=order.terms.reveal_ms,
        bids=None if certificate is None else certificate.bid_count,
        votes=len(signers),
        voters=len(voters),
        share=round(weight_of(signers, weights) / max(1, sum(weights.values())), 4),
        certified_at=None if certificate is None else certificate.accepted_at,
    )


def voters_of(state: MarketState, order: OrderRecord) -> list[VoteWeight]:
    """None of a stake version that is too old to be kept."""
    return state.weights_at(order.stake_version) if order.stake_version in state.totals else []
