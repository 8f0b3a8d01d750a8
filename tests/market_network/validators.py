"""A validator of the simulation: the product's state machine with a clock, a disk and a network of its own.

What it signed is on its disk before anything leaves; a crash loses everything else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sparewatt.market.match.model import (
    AuctionContext,
    BidderStanding,
    MatchOutput,
    MatchTiming,
    QuorumCertificate,
    SignedRecord,
)
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.signing import SigningKey
from tests.market_network.happenings import Happening
from tests.market_network.scenario import ATTEMPT_MS

if TYPE_CHECKING:
    from tests.market_network.world import World

TIMING = MatchTiming()
SUBMIT_AGAIN_MS = 500
STEPS_MAX = 20_000
"""Of one validator in one match: a machine that never rests is a fault."""


class SimulatedValidator:
    def __init__(self, world: World, number: int, key: SigningKey) -> None:
        self.world, self.number, self.key = world, number, key
        self.address = key.address.lower()
        self.disk: list[SignedRecord] = []
        self.match: ValidatorMatch | None = None
        self.is_up = True
        self.crashes_on_record: int | None = None
        """How long it is down then. An odd time: it dies before the record of a vote is on disk."""
        self.stops_at: int | None = None
        """How many records it stores before it goes down for good."""
        self.steps = 0
        self.starts = 0
        self.last_record: AuctionRecord | None = None
        """On its disk since its last vote, or since the match was over."""
        self._drift = world.scenario.drifts[number]
        self._offset = world.scenario.offsets_ms[number]
        self._started_ms = 0
        self._wake = 0

    @property
    def is_honest(self) -> bool:
        return True

    def clock(self) -> int:
        return self._offset + int(self.world.timeline.now_ms * self._drift)

    def age_ms(self) -> int:
        """Of the match that runs in this life of the process, by its own clock."""
        return self.clock() - self._started_ms

    # The life of the process

    def see_order(self) -> None:
        """The lookup's block is there. After a crash or a reorganisation it goes on from its disk."""
        if self.is_up and self.match is None and self.world.order_is_there(self.number):
            try:
                self.match = self.world.core.validator(
                    self.context(),
                    key=self.key,
                    timing=TIMING,
                    standing=self.standing,
                    stored=tuple(self.disk),
                    recorded=self.last_record if self.disk else None,
                )
            except ValueError as error:
                self.world.watch.broken.append(f"5.1 validator {self.number} refuses its own records: {error}")
                return
            self.starts += 1
            self._started_ms = self.clock()
            self.world.watch.happened[Happening.FROM_DISK] += bool(self.disk)
            self.act(self.match.start(self.clock()), None)

    def context(self) -> AuctionContext:
        return self.world.context_now()

    def standing(self, provider: str) -> BidderStanding:
        return self.world.standings.get(provider, BidderStanding.GOOD)

    def lose_order(self) -> None:
        """A reorganisation has taken the lookup's block away."""
        self._keep_record()
        self._forget(Happening.LOOKUP_GONE)

    def crash(self, down_ms: int) -> None:
        self._forget(Happening.CRASH)
        self.is_up = False
        self.world.timeline.after(down_ms, self.restart)

    def restart(self) -> None:
        self.is_up = True
        self.see_order()

    def _forget(self, why: Happening) -> None:
        if self.match is not None:
            self.world.watch.happened[why] += 1
            self.world.watch.happened[self.match.phase] += 1
        self.match = None

    def settle(self) -> None:
        if self.match is not None:
            self.act(self.match.settled(self.clock()), None)
            self._keep_record()

    def _keep_record(self) -> None:
        if self.match is not None:
            self.last_record = self.match.record()

    def lists(self) -> tuple[object, list[SignedCommitList | SignedRevealList]]:
        """What it gives to a bidder that asks, and something that changes with it."""
        if self.match is None:
            return None, []
        found: list[SignedCommitList | SignedRevealList] = [*self.match.commit_lists()]
        found += self.match.reveal_lists()
        for each in found:
            self.world.watch.left(self, each)
        return (self.starts, self.match.version), found

    # Steps of the state machine

    def deliver(self, message: MatchMessage, sender: int | None) -> MatchOutput | None:
        if self.match is None:
            return None
        before = self.match.phase
        held = isinstance(message, SignedCommit) and self.match.holds_commit_of(message.commit.provider)
        output = self.match.receive(message, now_ms=self.clock())
        self.world.watch.received(self, message, output, before=before, was_held=held)
        self.act(output, sender)
        return output

    def act(self, output: MatchOutput, sender: int | None) -> None:
        self.steps += 1
        assert self.steps < STEPS_MAX, "a validator never rests"
        self.disk += output.records
        is_killed_early = bool(self.crashes_on_record and self.crashes_on_record % 2)
        if any(isinstance(record, SignedVote) for record in output.records) and not is_killed_early:
            self._keep_record()
        if self.stops_at is not None and len(self.disk) >= self.stops_at:
            self.crash(ATTEMPT_MS)
            return
        if output.records and self.crashes_on_record is not None:
            down_ms, self.crashes_on_record = self.crashes_on_record, None
            self.world.watch.happened[Happening.CRASH_ON_RECORD] += 1
            self.crash(down_ms)
            return
        for message in output.broadcast:
            for peer in range(len(self.world.validators)):
                if peer != self.number:
                    self.send(message, peer)
        if sender is not None:
            for message in output.replies:
                self.send(message, sender)
        if output.certificate is not None:
            self.submit(output.certificate)
        self._schedule()

    def send(self, message: MatchMessage, peer: int) -> None:
        self.world.watch.left(self, message)
        self.world.send(self.number, peer, message)

    def submit(self, certificate: QuorumCertificate) -> None:
        """Again and again until the chain is final: a reorganisation may take the acceptance back."""
        self.world.chain.submit(certificate)
        if not self.world.chain.is_final:
            self.world.timeline.after(SUBMIT_AGAIN_MS, lambda: self.submit(certificate))

    def _schedule(self) -> None:
        self._wake += 1
        if self.match is None or self.match.next_tick_ms is None:
            return
        wake = self._wake
        at_ms = math.ceil((self.match.next_tick_ms - self._offset) / self._drift)
        self.world.timeline.at(max(at_ms, self.world.timeline.now_ms + 1), lambda: self._tick(wake))

    def _tick(self, wake: int) -> None:
        if self.match is not None and wake == self._wake:
            self.act(self.match.tick(self.clock()), None)
