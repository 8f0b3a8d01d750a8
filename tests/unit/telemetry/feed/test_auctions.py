"""Lease auctions in the live feed, from the chain's events."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.core.errors import NoChain
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.market.chain_records import OrderState
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.telemetry.feed.auctions import FEED_AUCTIONS_KEPT, AuctionFeed
from tests.unit.gateway.small_gateway import make_services, running
from tests.unit.leasing.test_market_index import MemoryEvents
from tests.unit.market.market_events import (
    BLOCK_S,
    ORDER,
    OTHER_OPERATOR,
    OTHER_VOTE_KEY,
    START_S,
    VOTE_KEY,
    accepted,
    an_event,
    created,
    in_blocks,
    lookup,
    no_match,
    weighed,
)
from tests.unit.telemetry.feed.test_live_feed import next_event, watched

STAKE = [
    weighed(VOTE_KEY, version=1, weight=9, total=9),
    weighed(OTHER_VOTE_KEY, version=2, weight=3, total=12, operator=OTHER_OPERATOR),
]


class Chain:
    def __init__(self, *events: ChainEvent) -> None:
        self._view = ChainView(depth=1)
        self.add(*events)

    def add(self, *events: ChainEvent) -> None:
        placed = in_blocks(events, first=self._view.latest_block + 1)
        self._view.advance(placed, to_block=self._view.latest_block + len(placed))

    def view(self) -> ChainView:
        return self._view


class WithoutChain:
    def view(self) -> ChainView:
        raise NoChain("The lease market")


def test_an_open_auction_has_no_votes_yet() -> None:
    (auction,) = AuctionFeed(Chain(*STAKE, lookup())).newest()
    assert (auction.id, auction.state, auction.attempt, auction.gpus) == (ORDER, "open", 0, 1)
    assert (auction.bids, auction.votes, auction.voters, auction.share) == (None, 0, 2, 0.0)
    assert (auction.at, auction.certified_at) == (START_S + 2 * BLOCK_S, None)


def test_a_certificate_brings_bids_votes_and_their_weight() -> None:
    (won,) = AuctionFeed(Chain(*STAKE, lookup(), accepted(), created())).newest()
    assert (won.state, won.bids, won.votes, won.voters, won.share) == ("matched", 5, 2, 2, 1.0)
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=97)
    (nobody,) = AuctionFeed(Chain(*STAKE, lookup(), no_match(), unmatched)).newest()
    assert (nobody.state, nobody.votes, nobody.share) == ("unmatched", 1, 0.75)


def test_a_signer_without_weight_has_no_vote() -> None:
    (auction,) = AuctionFeed(
        Chain(STAKE[0], weighed(VOTE_KEY, version=2, weight=9, total=9), lookup(), accepted())
    ).newest()
    assert (auction.votes, auction.voters, auction.share) == (1, 1, 1.0)


def test_votes_of_a_stake_version_that_was_forgotten_are_not_counted() -> None:
    (auction,) = AuctionFeed(Chain(lookup(), accepted())).newest()
    assert (auction.bids, auction.votes, auction.voters, auction.share) == (5, 0, 0, 0.0)


def test_only_the_newest_are_shown_and_the_latest_comes_first() -> None:
    ids = [f"0x{number:064x}" for number in range(FEED_AUCTIONS_KEPT + 3)]
    assert [one.id for one in AuctionFeed(Chain(*map(lookup, ids))).newest()] == ids[:2:-1]


def test_nothing_is_made_anew_until_an_auction_changes() -> None:
    chain = Chain(*STAKE, lookup())
    feed = AuctionFeed(chain)
    before = feed.newest()
    chain.add(weighed(VOTE_KEY, version=3, weight=1, total=4))
    assert feed.newest() is before
    chain.add(accepted())
    assert feed.newest() is not before


def test_a_network_without_a_chain_has_no_auctions() -> None:
    feed = AuctionFeed(WithoutChain())
    assert feed.newest() == []
    assert feed.newest() is feed.newest()


async def test_viewers_see_an_auction_and_then_its_votes() -> None:
    source = MemoryEvents(depth=1)
    index = MarketIndex(source, has_chain=True)
    services = make_services()
    services.live.auctions = AuctionFeed(index)
    placed = in_blocks([*STAKE, lookup(), accepted()])
    source.index(placed[:-1], to_block=3)
    await index.follow()
    async with running(services) as client:
        reply = await watched(client)
        _, _, snapshot = await next_event(reply)
        assert [(one["id"], one["votes"]) for one in snapshot["auctions"]] == [(ORDER, 0)]
        source.index(placed[-1:], to_block=4)
        await index.follow()
        await services.live.make_frame()
        kind, _, delta = await next_event(reply)
        assert (kind, [(one["votes"], one["share"]) for one in delta["auctions"]]) == ("delta", [(2, 1.0)])
        reply.close()


def test_every_state_of_an_order_has_a_name() -> None:
    chain = Chain(lookup())
    order = chain.view().latest.orders[ORDER]
    for state in OrderState:
        chain.view().latest.orders[ORDER] = replace(order, state=state)
        assert AuctionFeed(chain).newest()[0].state == state.name.lower()
