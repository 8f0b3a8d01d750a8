"""What an all-seeing observer writes down during a run, and the checks that need the moment."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparewatt.market.match.model import MatchOutput, MatchStage
from sparewatt.market.quorum import leader_of_match
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import TypedMessage, struct_hash
from tests.market_network.happenings import Happenings

if TYPE_CHECKING:
    from tests.market_network.bidders import SimulatedBidder
    from tests.market_network.validators import SimulatedValidator
    from tests.market_network.world import World


class Watch:
    def __init__(self, world: World) -> None:
        self.world = world
        self.messages: dict[int, MatchMessage] = {}
        """Everything that anybody sent, by identity."""
        self.broken: list[str] = []
        """Rules that a validator broke in plain sight."""
        self.first_reveal_ms: int | None = None
        """Of an honest bidder."""
        self.stable_round: int | None = None
        """The highest that was running when the network became stable; None if all was over by then."""
        self.happened: Happenings = Counter()
        self.refusals: set[tuple[int, int, str, int]] = set()
        """What honest validators answered to bidders: number, which of its lives, provider, code."""
        self._proposed: set[tuple[int, bytes]] = set()
        """Rounds and tasks that the rounds' leaders have proposed in public."""
        self._stored: dict[int, tuple[int, set[bytes]]] = {}

    def told(self, message: MatchMessage) -> None:
        if id(message) not in self.messages:
            self.messages[id(message)] = message
            if isinstance(message, Proposal) and self._is_of_leader(message.vote):
                self._proposed.add((message.vote.vote.round, message.vote.vote.task_hash))

    def _was_proposed(self, signed: SignedVote) -> bool:
        """A leader's own vote is its proposal, which may have been lost in a crash."""
        return (signed.vote.round, signed.vote.task_hash) in self._proposed or self._is_of_leader(signed)

    def _is_of_leader(self, signed: SignedVote) -> bool:
        context, round_ = self.world.context, signed.vote.round
        leader = leader_of_match(context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_)
        return self.world.signed_by(signed.vote, signed.signature) == leader

    def left(self, validator: SimulatedValidator, message: MatchMessage) -> None:
        """5.1: what an honest validator signed is on its disk before it leaves."""
        if id(message) in self.messages or not validator.is_honest:
            return
        self.told(message)
        if isinstance(message, SignedVote) and not self._was_proposed(message):
            self.broken.append(f"5.5b validator {validator.number} voted before the leader proposed")
        for signed, signature in _signed_parts(message):
            if struct_hash(signed) in self._disk(validator):
                continue
            if self.world.signed_by(signed, signature) == validator.address:
                self.broken.append(f"5.1 {type(signed).__name__} of validator {validator.number} left unstored")

    def _disk(self, validator: SimulatedValidator) -> set[bytes]:
        count, stored = self._stored.get(validator.number, (0, set()))
        for record in validator.disk[count:]:
            signed = record.vote if isinstance(record, SignedVote) else record.list
            stored.add(struct_hash(signed))
        self._stored[validator.number] = (len(validator.disk), stored)
        return stored

    def received(
        self,
        validator: SimulatedValidator,
        message: MatchMessage,
        output: MatchOutput,
        *,
        before: MatchStage,
        was_held: bool,
    ) -> None:
        """§4: a commit that comes when the window is closed is LATE, unless it is held already."""
        if not validator.is_honest:
            return
        if isinstance(message, SignedCommit) and before is not MatchStage.COMMIT and output.code == 0 and not was_held:
            self.broken.append(f"§4 validator {validator.number} took a late commit")
        if isinstance(message, SignedCommit | RevealedBid) and output.code:
            provider = message.commit.provider if isinstance(message, SignedCommit) else message.bid.provider
            self.refusals.add((validator.number, validator.starts, provider.lower(), output.code))
            self.happened[MessageRefusal(output.code)] += 1
            if output.code == MessageRefusal.LATE and not 0 <= output.late_by_ms <= validator.age_ms():
                self.broken.append(f"§2 late by {output.late_by_ms} ms in a match of {validator.age_ms()} ms")

    def revealed(self, bidder: SimulatedBidder) -> None:
        if bidder.is_honest and self.first_reveal_ms is None:
            self.first_reveal_ms = self.world.timeline.now_ms
            for copycat in self.world.bidders:
                copycat.copy()


def _signed_parts(message: MatchMessage) -> list[tuple[TypedMessage, bytes]]:
    match message:
        case SignedCommitList():
            return [(message.list, message.signature)]
        case SignedRevealList():
            lists = [part for each in message.commit_lists for part in _signed_parts(each)]
            return [(message.list, message.signature), *lists]
        case SignedVote():
            return [(message.vote, message.signature)]
        case Proposal():
            lists = [part for each in message.commit_lists for part in _signed_parts(each)]
            return [*_signed_parts(message.vote), *lists]
        case _:
            return []
