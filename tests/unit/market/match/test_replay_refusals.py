"""What a replay says of each kind of bid that cannot win: late, doubled, too dear, unbonded, forged, hidden, replayed.

The records are those of four validators after a whole match, written and read again as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.match.model import BidderStanding, MatchStage
from sparewatt.market.match.record import read_record, write_record
from sparewatt.market.match.replay import BidOutcome, Replay, ReplayedBid, replay
from sparewatt.protocol.contracts.match_messages import SignedCommit
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import contract_domain, struct_hash
from tests.order_terms import order_terms
from tests.unit.market.match.match_scene import (
    PROVIDERS,
    TERMS,
    VOTE_KEYS,
    MatchScene,
    bid_for,
    commit_for,
    context_for,
    decline_for,
    key_of,
)

BAD, HONEST = PROVIDERS[0], PROVIDERS[1]
CAP = 1_500_000
OTHER_ORDER = b"\x0e" * 32
OTHER_CHAIN = contract_domain(chain_id=1, contract="0x" + "5a" * 20)
OTHER_CONTRACT = contract_domain(chain_id=31_337, contract="0x" + "5b" * 20)


def late(scene: MatchScene) -> None:
    """When the windows of all are closed."""
    scene.say(commit_for(bid_for(0)), delay_ms=850)


def doubled(scene: MatchScene) -> None:
    scene.bid(bid_for(0))
    scene.say(commit_for(bid_for(0, price=1, salt="again")), delay_ms=10)


def over_the_cap(scene: MatchScene) -> None:
    scene.bid(bid_for(0, price=CAP + 1))


def unbonded(scene: MatchScene) -> None:
    scene.standings = {BAD: BidderStanding.UNBONDED}
    scene.say(commit_for(bid_for(0)))


def forged(scene: MatchScene) -> None:
    """By somebody else, in its name."""
    scene.say(commit_for(bid_for(0), key=key_of("a stranger")))


def unrevealed(scene: MatchScene) -> None:
    scene.say(commit_for(bid_for(0)))


def too_small(scene: MatchScene) -> None:
    scene.bid(bid_for(0, terms=replace(TERMS, memory_mib=1)))


def from_another_order(scene: MatchScene) -> None:
    scene.say(commit_for(bid_for(0, order_id=OTHER_ORDER)))


def from_another_order_with_this_ones_id(scene: MatchScene) -> None:
    """The signature is of the other order."""
    theirs = commit_for(bid_for(0, order_id=OTHER_ORDER))
    scene.say(SignedCommit(replace(theirs.commit, order_id=scene.context.order_id), theirs.signature))


def from_another_attempt(scene: MatchScene) -> None:
    scene.say(commit_for(bid_for(0, attempt=1)))


def from_another_chain(scene: MatchScene) -> None:
    scene.say(commit_for(bid_for(0), domain=OTHER_CHAIN))


def from_another_contract(scene: MatchScene) -> None:
    scene.say(commit_for(bid_for(0), domain=OTHER_CONTRACT))


WHY_UNREVEALED = "A quorum listed its commit, and it was not revealed in time."
CASES: list[tuple[Callable[[MatchScene], None], BidOutcome, str, set[MessageRefusal]]] = [
    (late, BidOutcome.REFUSED, "LATE", {MessageRefusal.LATE}),
    (doubled, BidOutcome.WON, "The lowest score.", {MessageRefusal.DUPLICATE}),
    (over_the_cap, BidOutcome.REJECTED, "OVER_MAX_PRICE", set()),
    (unbonded, BidOutcome.REFUSED, "UNBONDED", {MessageRefusal.UNBONDED}),
    (forged, BidOutcome.REFUSED, "BAD_SIGNATURE", {MessageRefusal.BAD_SIGNATURE}),
    (unrevealed, BidOutcome.UNREVEALED, WHY_UNREVEALED, {MessageRefusal.UNREVEALED}),
    (too_small, BidOutcome.UNREVEALED, WHY_UNREVEALED, {MessageRefusal.UNREVEALED, MessageRefusal.TERMS}),
    (from_another_order, BidOutcome.REFUSED, "WRONG_ORDER_OR_ATTEMPT", {MessageRefusal.WRONG_ORDER_OR_ATTEMPT}),
    (from_another_order_with_this_ones_id, BidOutcome.REFUSED, "BAD_SIGNATURE", {MessageRefusal.BAD_SIGNATURE}),
    (from_another_attempt, BidOutcome.REFUSED, "WRONG_ORDER_OR_ATTEMPT", {MessageRefusal.WRONG_ORDER_OR_ATTEMPT}),
    (from_another_chain, BidOutcome.REFUSED, "BAD_SIGNATURE", {MessageRefusal.BAD_SIGNATURE}),
    (from_another_contract, BidOutcome.REFUSED, "BAD_SIGNATURE", {MessageRefusal.BAD_SIGNATURE}),
]


def a_match(make: Callable[[MatchScene], None], **arguments: Any) -> MatchScene:
    """Provider 1 bids as it should, 2 declines; 0 would be cheaper, and is up to the case."""
    scene = MatchScene(context=context_for(terms=order_terms(max_price_uusd=CAP)), **arguments)
    scene.start()
    scene.bid(bid_for(1))
    scene.say(decline_for(2))
    make(scene)
    scene.run(for_ms=4_000)
    return scene


def replayed(scene: MatchScene) -> Replay:
    """From what all validators have recorded, after the chain has accepted their certificate."""
    for match in scene.validators.values():
        match.settled(scene.now_ms)
    records = [match.record() for match in scene.validators.values()]
    public = [read_record(json.loads(json.dumps(write_record(record)))) for record in records]
    return replay(*public, accepted=scene.certificate().task, chain_context=scene.context)


def bid_of(again: Replay, provider: str = BAD) -> ReplayedBid:
    return next(bid for bid in again.bids if bid.provider == provider)


@pytest.mark.parametrize(("make", "outcome", "reason", "codes"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bid_that_cannot_win_has_its_reason_in_the_replay(
    make: Callable[[MatchScene], None], outcome: BidOutcome, reason: str, codes: set[MessageRefusal]
) -> None:
    scene = a_match(make)
    again = replayed(scene)
    bid = bid_of(again)
    assert (bid.outcome, bid.reason) == (outcome, reason)
    assert {refusal.code for refusal in bid.refusals} == codes
    assert {refusal.reason for refusal in bid.refusals} == {code.name for code in codes}
    said_by = {key.address for key in VOTE_KEYS}
    assert all({each.validator for each in bid.refusals if each.code == code} == said_by for code in codes)
    assert again.differences == ()
    if outcome is not BidOutcome.WON:
        assert again.winner is not None
        assert again.winner.provider == HONEST
    assert bid_of(again, HONEST).refusals == ()


def test_of_a_late_bid_the_replay_says_by_how_much() -> None:
    for refusal in bid_of(replayed(a_match(late))).refusals:
        assert 0 < refusal.late_by_ms < 900


def test_the_reason_is_what_most_validators_said_first() -> None:
    """The first validator never got the commit, and refuses the bid that is revealed all the same."""

    def late_and_lost(scene: MatchScene) -> None:
        scene.say(commit_for(bid_for(0)), to=(1, 2, 3), delay_ms=850)
        scene.say(bid_for(0), delay_ms=852)

    bid = bid_of(replayed(a_match(late_and_lost)))
    assert bid.refusals[0].reason == "UNCERTIFIED"
    assert bid.reason == "LATE"


def test_a_second_commit_wins_nothing() -> None:
    scene = a_match(doubled)
    bid = bid_of(replayed(scene))
    assert bid.terms is not None
    assert bid.terms.price_uusd == bid_for(0).bid.price_uusd


def test_who_declines_and_is_impersonated_has_both_in_the_replay() -> None:
    def declined(scene: MatchScene) -> None:
        scene.say(decline_for(0))
        forged(scene)

    bid = bid_of(replayed(a_match(declined)))
    assert (bid.outcome, bid.reason) == (BidOutcome.DECLINED, "BUSY")
    assert {refusal.reason for refusal in bid.refusals} == {"BAD_SIGNATURE"}


# bids for a match that others have decided, or that is over


def test_a_bid_after_the_end_is_late_and_the_replay_says_so() -> None:
    scene = a_match(lambda scene: scene.say(decline_for(0)))
    match = scene.validators[0]
    match.settled(scene.now_ms)
    seen, before = match.version, match.record()
    for at_ms in (5_000, 6_000):
        out = match.receive(commit_for(bid_for(3)), now_ms=scene.now_ms + at_ms)
        assert (out.code, out.broadcast, out.replies) == (MessageRefusal.NOT_IN_SNAPSHOT, [], [])
        out = match.receive(commit_for(bid_for(0)), now_ms=scene.now_ms + at_ms)
        assert (out.code, out.broadcast, out.replies) == (MessageRefusal.LATE, [], [])
    assert match.version > seen, "who watches the match is told"
    assert 4_000 < match.record().notes[-1].late_by_ms < 6_000, "noted once"
    assert replace(match.record(), notes=()) == replace(before, notes=())
    again = replay(match.record())
    assert {refusal.reason for refusal in bid_of(again).refusals} == {"LATE"}
    assert bid_of(again, PROVIDERS[3]).reason == "NOT_IN_SNAPSHOT"
    assert match.receive(commit_for(bid_for(1)), now_ms=scene.now_ms + 7_000).code == 0, "this one was in time"


def test_a_bid_for_an_order_that_went_away_in_the_window_is_not_late() -> None:
    """A reorganisation may bring the order back: then the bidder asks again."""
    scene = MatchScene()
    scene.start()
    scene.run(until=lambda: bool(scene.validators[0].version))
    match = scene.validators[0]
    match.settled(scene.now_ms)
    out = match.receive(commit_for(bid_for(1)), now_ms=scene.now_ms + 1)
    assert (out.code, out.notes) == (MessageRefusal.WRONG_ORDER_OR_ATTEMPT, [])


def test_who_learns_of_the_certificate_in_its_own_window_counts_lateness_from_there() -> None:
    """It has closed neither window itself, and says no bidder that it is late by days."""
    scene = MatchScene()
    scene.start(delays_ms={3: 3_000})
    scene.bid(bid_for(1))
    scene.say(commit_for(bid_for(2)), delay_ms=5)
    slow = scene.validators[3]
    scene.run(until=lambda: slow.phase is MatchStage.CERTIFIED)
    assert scene.records[3] == []
    commit = slow.receive(commit_for(bid_for(0)), now_ms=scene.now_ms + 25)
    assert (commit.code, commit.late_by_ms) == (MessageRefusal.LATE, 25)
    reveal = slow.receive(bid_for(2), now_ms=scene.now_ms + 26)
    assert (reveal.code, reveal.late_by_ms) == (MessageRefusal.LATE, 26)
    assert struct_hash(scene.validators[0].certificate.task) == struct_hash(slow.certificate.task)  # type: ignore[union-attr]
