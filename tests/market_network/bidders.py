"""Bidders of the simulation: honest ones drive the product's state machine, the others bend what it sends."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparewatt.market.match.model import BidderContext, BidderOutput
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.market.rule import bid_id_of, commit_of
from sparewatt.protocol.contracts.match import Bid, Decline
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
)
from sparewatt.protocol.contracts.reasons import DeclineReason
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import message_digest, struct_hash
from tests.market_network.happenings import Happening
from tests.market_network.scenario import Trick

if TYPE_CHECKING:
    from tests.market_network.world import World

POLL_MS = 60
RESEND_MS = 100
STEPS_MAX = 20_000
HONEST = frozenset({Trick.NONE, Trick.DECLINES})


class SimulatedBidder:
    """One bid. `only` are the validators it speaks to."""

    def __init__(
        self, world: World, number: int, trick: Trick, price_uusd: int, *, only: frozenset[int] | None = None
    ) -> None:
        self.world, self.number, self.trick = world, number, trick
        self.address = world.providers[number].address
        self.node_key = world.providers[number].node_key
        self.only = only if only is not None else frozenset(range(len(world.scenario.weights)))
        self.rng = random.Random(f"bidder {world.scenario.seed} {number} {sorted(self.only)}")
        self.bid = self._bid(price_uusd)
        self.bid_id = bid_id_of(self.bid.bid)
        self.commit = self._commit()
        self.committed_ms: int | None = None
        self.revealed_ms: int | None = None
        self.codes: list[int] = []
        """With which validators answered its commit."""
        self.is_up = True
        self.match = self._new_match()
        self._versions: dict[int, object] = {}
        self._steps = 0
        self._wake = 0

    def _new_match(self) -> ProviderMatch:
        """With the bid and the commit that are on its disk."""
        context = self.world.context
        bidding = BidderContext(
            domain=context.domain, order_id=context.order_id, attempt=context.attempt, weights=context.weights
        )
        return self.world.core.provider(bidding, self.bid, self.commit, resend_ms=RESEND_MS)

    def _bid(self, price_uusd: int) -> RevealedBid:
        context = self.world.context
        price = context.terms.max_price_uusd + 1 if self.trick is Trick.OVER_CAP else price_uusd
        terms = self.world.bid_terms
        if self.trick is Trick.THIN:
            terms = replace(terms, memory_mib=terms.memory_mib - 1)
        order_id = b"\x77" * 32 if self.trick is Trick.REPLAYED and self.rng.random() < 0.5 else context.order_id
        bid = Bid(order_id, context.attempt, self.address, price, struct_hash(terms), self.rng.randbytes(32))
        return RevealedBid(bid, terms, self.world.specification)

    def _commit(self) -> SignedCommit:
        commit = commit_of(self.bid.bid)
        key, domain = self.node_key, self.world.context.domain
        if self.trick is Trick.FORGED:
            key = SigningKey(b"\x55" * 32)
        if self.trick is Trick.REPLAYED and commit.order_id == self.world.context.order_id:
            domain = replace(domain, chain_id=1)
        return SignedCommit(commit, key.sign(message_digest(domain, commit)))

    @property
    def is_honest(self) -> bool:
        return self.trick in HONEST

    def begin(self) -> None:
        """When the lookup has come over the node's link."""
        if self.trick is Trick.DECLINES:
            self._decline()
        elif self.trick is not Trick.COPYCAT:
            self._act(self.match.start(self.world.timeline.now_ms))
            self._poll()

    def copy(self) -> None:
        """A bid that is made in the light of another's."""
        if self.trick is Trick.COPYCAT and self.committed_ms is None:
            self._act(self.match.start(self.world.timeline.now_ms))
            self._poll()

    def crash(self, down_ms: int) -> None:
        """All that it has heard is lost."""
        if not self.is_up or self.committed_ms is None or self.world.chain.is_final:
            return
        self.world.watch.happened[Happening.BIDDER_RESTART] += 1
        self.is_up, self.match, self._versions = False, self._new_match(), {}
        self._wake += 1
        self.world.timeline.after(down_ms, self._restart)

    def _restart(self) -> None:
        self.is_up = True
        self._act(self.match.start(self.world.timeline.now_ms))

    def _decline(self) -> None:
        context = self.world.context
        decline = Decline(context.order_id, context.attempt, self.address, DeclineReason.BUSY)
        signed = SignedDecline(decline, self.node_key.sign(message_digest(context.domain, decline)))
        for _ in range(3):
            for number in self.only:
                self.world.carry(number, partial(self._given, number, signed))

    def _given(self, number: int, message: MatchMessage) -> None:
        self.world.validators[number].deliver(message, None)

    def _act(self, output: BidderOutput) -> None:
        self._steps += 1
        assert self._steps < STEPS_MAX, "a bidder never rests"
        for vote_key, message in output.send:
            self._send(self.world.number_of(vote_key), message)
        self._wake += 1
        if self.match.next_tick_ms is not None and not self.world.chain.is_final:
            wake = self._wake
            at_ms = max(math.ceil(self.match.next_tick_ms), self.world.timeline.now_ms + 1)
            self.world.timeline.at(at_ms, lambda: self._tick(wake))

    def _tick(self, wake: int) -> None:
        if wake == self._wake and not self.world.chain.is_final:
            self._act(self.match.tick(self.world.timeline.now_ms))

    def _send(self, number: int, message: MatchMessage) -> None:
        if number not in self.only:
            return
        if isinstance(message, RevealedBid):
            if self.trick is Trick.UNREVEALED:
                return
            if self.revealed_ms is None:
                self.revealed_ms = self.world.timeline.now_ms
                self.world.watch.revealed(self)
        elif self.committed_ms is None:
            self.committed_ms = self.world.timeline.now_ms
        self.world.watch.told(message)
        self.world.carry(number, lambda: self._arrive(number, message))

    def _arrive(self, number: int, message: MatchMessage) -> None:
        output = self.world.validators[number].deliver(message, None)
        if output is not None:
            code = output.code
            self.world.carry(number, lambda: self._answered(number, message, code))

    def _answered(self, number: int, message: MatchMessage, code: int) -> None:
        if isinstance(message, SignedCommit) and self.is_up:
            self.codes.append(code)
            self.match.answered(self.world.validators[number].address, code)

    def _poll(self) -> None:
        """It fetches each validator's lists."""
        if self.world.chain.is_final:
            return
        for number in self.only if self.is_up else ():
            self.world.carry(number, partial(self._fetch, number))
        self.world.timeline.after(POLL_MS, self._poll)

    def _fetch(self, number: int) -> None:
        """What is new since the last answer that arrived."""
        version, lists = self.world.validators[number].lists()
        if version != self._versions.get(number):
            self.world.carry(number, lambda: self._learn(number, version, lists))

    def _learn(self, number: int, version: object, lists: list[SignedCommitList | SignedRevealList]) -> None:
        if not self.is_up:
            return
        self._versions[number] = version
        for each in lists:
            self._act(self.match.receive(each, now_ms=self.world.timeline.now_ms))
