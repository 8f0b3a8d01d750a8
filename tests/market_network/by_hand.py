"""A match signed by hand, without state machines: what each party would sign if everything went well."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparewatt.market.match.model import MatchNote
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.voting import auction_task
from sparewatt.market.rule import BidBook, bid_id_of, book_of, commit_of, leaf_of, snapshot_tree
from sparewatt.protocol.contracts.match import Bid, CommitList, Decline, RevealList, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, message_digest, struct_hash
from tests.market_network.scenario import Scenario
from tests.market_network.world import Cast, cast_of

USD = 1_000_000


@dataclass
class HandMatch:
    """`prices` maps a provider's number to its bid."""

    prices: dict[int, int]
    cast: Cast

    @classmethod
    def of(cls, prices: dict[int, int], **terms: Any) -> HandMatch:
        """All providers alike, so that the price decides."""
        cast = cast_of(Scenario(seed=1))
        alike = {
            provider: replace(profile, zone=1, gpu_units=2, uptime_ppm=10**6, reputation_ppm=10**6)
            for provider, profile in cast.context.profiles.items()
        }
        policy = replace(cast.context.terms, **{"payment_rule": 0, "latency_value": 0, **terms})
        context = replace(
            cast.context,
            profiles=alike,
            snapshot_root=snapshot_tree(alike.values())[1].root,
            terms=policy,
            policy_hash=struct_hash(policy),
        )
        return cls(prices, replace(cast, context=context))

    def bid(self, number: int, price_uusd: int | None = None) -> RevealedBid:
        context = self.cast.context
        price = self.prices[number] if price_uusd is None else price_uusd
        salt = bytes([number + 1]) * 32
        provider, terms = self.cast.providers[number].address, self.cast.bid_terms
        bid = Bid(context.order_id, context.attempt, provider, price, struct_hash(terms), salt)
        return RevealedBid(bid, terms, self.cast.specification)

    def commit(self, number: int, price_uusd: int | None = None, *, key: SigningKey | None = None) -> SignedCommit:
        commit = commit_of(self.bid(number, price_uusd).bid)
        return SignedCommit(commit, self.sign(key or self.cast.providers[number].node_key, commit))

    def decline(self, number: int, code: int) -> SignedDecline:
        context, provider = self.cast.context, self.cast.providers[number]
        decline = Decline(context.order_id, context.attempt, provider.address, code)
        return SignedDecline(decline, self.sign(provider.node_key, decline))

    def commit_list(self, validator: int, numbers: list[int] | None = None) -> SignedCommitList:
        commits = tuple(self.commit(number) for number in (self.prices if numbers is None else numbers))
        ids = tuple(sorted(each.commit.bid_id for each in commits))
        signed = CommitList(self.cast.context.order_id, self.cast.context.attempt, ids)
        return SignedCommitList(signed, self.sign(self.cast.vote_keys[validator], signed), commits)

    def reveal_list(self, validator: int, numbers: list[int] | None = None) -> SignedRevealList:
        bids = tuple(self.bid(number) for number in (self.prices if numbers is None else numbers))
        ids = tuple(sorted(bid_id_of(each.bid) for each in bids))
        signed = RevealList(self.cast.context.order_id, self.cast.context.attempt, ids)
        return SignedRevealList(signed, self.sign(self.cast.vote_keys[validator], signed), bids, ())

    def book(self, numbers: list[int] | None = None) -> BidBook:
        context = self.cast.context
        bids = [self.bid(number).bid for number in (self.prices if numbers is None else numbers)]
        leaves = [leaf_of(context.terms, bid, context.profiles[bid.provider]) for bid in bids]
        return book_of(context.order_id, leaves)

    def task(self, book: BidBook) -> Task:
        return auction_task(self.cast.context, book)

    def vote(self, validator: int, task: Task, *, round_: int = 0) -> SignedVote:
        vote = Vote(task.order_id, task.attempt, round_, struct_hash(task))
        return SignedVote(vote, self.sign(self.cast.vote_keys[validator], vote))

    def proposal(self, validator: int, book: BidBook, task: Task | None = None) -> Proposal:
        told = task or self.task(book)
        return Proposal(self.vote(validator, told), told, book.leaves, (), (), ())

    def sign(self, key: SigningKey, message: TypedMessage) -> bytes:
        return key.sign(message_digest(self.cast.context.domain, message))

    def record(self, *notes: MatchNote, **changes: Any) -> AuctionRecord:
        """Of the first validator, after a vote of three of four."""
        book = self.book()
        usual: dict[str, Any] = {
            "context": self.cast.context,
            "validator": self.cast.vote_keys[0].address.lower(),
            "commits": tuple(map(self.commit, self.prices)),
            "commit_lists": tuple(replace(self.commit_list(i), commits=()) for i in range(4)),
            "reveals": tuple(map(self.bid, self.prices)),
            "reveal_lists": tuple(replace(self.reveal_list(i), bids=()) for i in range(4)),
            "proposals": (self.proposal(0, book),),
            "votes": tuple(self.vote(i, self.task(book)) for i in range(3)),
            "notes": notes,
        }
        return AuctionRecord(**{**usual, **changes})
