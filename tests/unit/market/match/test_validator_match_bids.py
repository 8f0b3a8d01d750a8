"""Bids that are late, doubled, unbonded, forged or never revealed: refused by code, and the match goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.model import BidderStanding, BidState, MatchStage
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedCommit
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import contract_domain, struct_hash
from tests.unit.market.match.match_scene import (
    NODE_KEYS,
    PROVIDERS,
    SPEC,
    TERMS,
    MatchScene,
    bid_for,
    commit_for,
    context_for,
    decline_for,
    key_of,
    leader,
    profile_of,
    signed_by,
)


def a_match(**arguments: object) -> MatchScene:
    """Provider 1 bids as it should; 0, which would be cheaper, is up to the test; 2 declines."""
    scene = MatchScene(**arguments)  # type: ignore[arg-type]
    scene.start()
    scene.bid(bid_for(1))
    scene.say(decline_for(2))
    return scene


def refused(scene: MatchScene, tag: str) -> set[int]:
    return {code for _, name, code in scene.codes if name == tag}


def test_a_late_commit_is_told_by_how_much() -> None:
    scene = MatchScene()
    scene.start()
    scene.bid(bid_for(1))
    scene.run(until=lambda: all(match.phase is not MatchStage.COMMIT for match in scene.validators.values()))
    closed = scene.now_ms
    out = scene.validators[0].receive(commit_for(bid_for(0)), now_ms=closed + 33)
    assert out.code == MessageRefusal.LATE
    assert 33 <= out.late_by_ms <= 36
    assert [note.late_by_ms for note in out.notes if note.subject == PROVIDERS[0]] == [out.late_by_ms]
    scene.run()
    assert scene.winner() == PROVIDERS[1]
    assert scene.validators[0].refusals() == {PROVIDERS[0]: MessageRefusal.LATE}


def test_a_commit_made_after_a_reveal_is_never_certified() -> None:
    """The cheapest lie: wait for the others' prices, then undercut."""
    scene = MatchScene()
    scene.start()
    scene.bid(bid_for(1))
    scene.run(until=lambda: 1 in scene.bidders and scene.bidders[1].may_reveal)
    cheap = bid_for(0, price=1)
    scene.say(commit_for(cheap))
    scene.say(cheap, delay_ms=5)
    scene.run()
    assert scene.winner() == PROVIDERS[1]
    assert scene.certificate().task.bid_count == 1


def test_the_same_commit_again_is_acknowledged_again() -> None:
    scene = a_match()
    commit = commit_for(bid_for(0))
    for delay_ms in (1, 5, 900):
        scene.say(commit, delay_ms=delay_ms)
    scene.run(for_ms=1_000, until=lambda: scene.now_ms > 1_950)
    assert refused(scene, "commit") == set()


def test_of_two_commits_the_first_counts() -> None:
    scene = a_match()
    dear, cheap = bid_for(0, price=2_000_000), bid_for(0, price=900_000)
    scene.say(commit_for(dear), delay_ms=1)
    scene.say(commit_for(cheap), delay_ms=2)
    scene.say(cheap, delay_ms=30)
    scene.run()
    assert refused(scene, "commit") == {MessageRefusal.DUPLICATE}
    assert refused(scene, "reveal") == {MessageRefusal.REVEAL_MISMATCH}
    assert scene.winner() == PROVIDERS[1]


def test_two_commits_to_different_validators_are_both_uncertified() -> None:
    scene = a_match()
    dear, cheap = bid_for(0, price=2_000_000), bid_for(0, price=900_000)
    scene.say(commit_for(dear), to=(0, 1), delay_ms=1)
    scene.say(commit_for(cheap), to=(2, 3), delay_ms=1)
    for revealed in (dear, cheap):
        scene.say(revealed, delay_ms=60)
        scene.say(revealed, delay_ms=900)
    scene.run()
    assert scene.winner() == PROVIDERS[1]
    assert scene.certificate().task.bid_count == 1


@pytest.mark.parametrize("standing", [each for each in BidderStanding if each is not BidderStanding.GOOD])
def test_a_bidder_without_standing_is_refused(standing: BidderStanding) -> None:
    scene = a_match(standings={PROVIDERS[0]: standing})
    scene.say(commit_for(bid_for(0)))
    scene.run()
    assert refused(scene, "commit") == {standing.value}
    assert scene.winner() == PROVIDERS[1]
    assert {match.refusals()[PROVIDERS[0]] for match in scene.validators.values()} == {standing.value}


def test_a_bond_that_comes_in_time_is_enough() -> None:
    standings = {PROVIDERS[0]: BidderStanding.UNBONDED}
    scene = a_match(standings=standings)
    scene.bid(bid_for(0))
    scene.at(100, standings.clear)
    scene.run()
    assert scene.winner() == PROVIDERS[0]


@pytest.mark.parametrize(
    ("commit", "code"),
    [
        (commit_for(bid_for(0), key=key_of("a stranger")), MessageRefusal.BAD_SIGNATURE),
        (replace(commit_for(bid_for(0)), signature=bytes(65)), MessageRefusal.BAD_SIGNATURE),
        (commit_for(bid_for(0, order_id=b"\1" * 32)), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (commit_for(bid_for(0, attempt=1)), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (
            commit_for(bid_for(0), domain=contract_domain(chain_id=1, contract="0x" + "5a" * 20)),
            MessageRefusal.BAD_SIGNATURE,
        ),
        (
            commit_for(bid_for(0), domain=contract_domain(chain_id=31_337, contract="0x" + "5b" * 20)),
            MessageRefusal.BAD_SIGNATURE,
        ),
        (commit_for(bid_for(4)), MessageRefusal.NOT_IN_SNAPSHOT),
    ],
)
def test_a_commit_that_does_not_belong_here_is_refused(commit: object, code: int) -> None:
    scene = a_match()
    scene.say(commit)  # type: ignore[arg-type]
    scene.run()
    assert refused(scene, "commit") == {code}
    assert scene.certificate().task.bid_count == 1


def test_a_provider_that_nobody_registered_is_refused_and_not_named() -> None:
    scene = a_match()
    bid = bid_for(0, provider="0x" + "77" * 20)
    scene.say(commit_for(bid, key=key_of("node 0")))
    scene.run()
    assert refused(scene, "commit") == {MessageRefusal.NOT_REGISTERED}
    assert scene.validators[0].refusals() == {}
    assert {note.subject for note in scene.validators[0].record().notes} == {""}


def test_a_bid_that_is_never_revealed_is_left_out_and_noted() -> None:
    scene = a_match()
    scene.say(commit_for(bid_for(0)))
    scene.run()
    assert scene.winner() == PROVIDERS[1]
    assert scene.certificate().task.bid_count == 1
    notes = [note for note in scene.validators[0].record().notes if note.code == MessageRefusal.UNREVEALED]
    assert [note.subject for note in notes] == [PROVIDERS[0]]


def test_a_bid_that_is_revealed_to_one_validator_is_relayed() -> None:
    scene = a_match()
    scene.say(commit_for(bid_for(0)))
    scene.say(bid_for(0), to=(2,), delay_ms=20)
    scene.run()
    assert scene.winner() == PROVIDERS[0]


def test_a_bid_revealed_too_late_is_kept_for_later_rounds() -> None:
    """The leader of round 0 is silent, so there is a round 1 in which the bid stands."""
    context = context_for()
    scene = a_match(context=context, silent=frozenset({leader(context)}))
    scene.say(commit_for(bid_for(0)))
    scene.run(until=lambda: all(match.phase is MatchStage.VOTE for match in scene.validators.values()))
    match = next(iter(scene.validators.values()))
    out = match.receive(bid_for(0), now_ms=scene.now_ms + 40)
    assert (out.code, out.late_by_ms > 30) == (MessageRefusal.LATE, True)
    assert match.receive(bid_for(0), now_ms=scene.now_ms + 41).code == 0
    scene.say(bid_for(0), to=scene.validators)
    scene.run()
    assert (scene.certificate().round, scene.winner()) == (1, PROVIDERS[0])


@pytest.mark.parametrize(
    ("revealed", "code"),
    [
        (RevealedBid(bid_for(0).bid, replace(TERMS, cpu_milli=9_000), SPEC), MessageRefusal.TERMS),
        (RevealedBid(bid_for(0).bid, TERMS, replace(SPEC, gpus=0)), MessageRefusal.TERMS),
        (bid_for(0, attempt=2), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (bid_for(0, price=5), MessageRefusal.REVEAL_MISMATCH),
        (bid_for(3), MessageRefusal.UNCERTIFIED),
    ],
)
def test_a_body_that_is_not_what_was_committed_is_refused(revealed: RevealedBid, code: int) -> None:
    scene = a_match()
    scene.say(commit_for(bid_for(0)))
    scene.say(revealed, delay_ms=20)
    scene.run()
    assert refused(scene, "reveal") == {code}
    assert scene.winner() == PROVIDERS[1]


def test_terms_that_do_not_cover_the_specification_are_refused() -> None:
    small = replace(TERMS, memory_mib=SPEC.memory_mib - 1)
    bid = bid_for(0, terms=small)
    assert bid.bid.terms_hash == struct_hash(small)
    scene = a_match()
    scene.say(commit_for(bid))
    scene.say(bid, delay_ms=20)
    scene.run()
    assert refused(scene, "reveal") == {MessageRefusal.TERMS}
    assert scene.winner() == PROVIDERS[1]


def test_a_bid_out_of_range_is_refused() -> None:
    scene = MatchScene()
    match = scene.validators[0]
    match.start(0)
    for price in (0, 1 << 40):
        out = match.receive(replace(bid_for(0), bid=replace(bid_for(0).bid, price_uusd=price)), now_ms=1)
        assert out.code == MessageRefusal.OUT_OF_RANGE


def test_a_copied_bid_id_harms_neither_the_bid_nor_the_match() -> None:
    """Provider 0 commits to the id of provider 1's bid, which it saw on its way, before provider 1 does."""
    theirs = bid_for(1)
    copied = replace(commit_for(theirs).commit, provider=PROVIDERS[0])
    scene = MatchScene()
    scene.start()
    scene.say(SignedCommit(copied, signed_by(NODE_KEYS[0], copied)))
    scene.bid(theirs, delay_ms=3)
    scene.say(decline_for(2), delay_ms=10)
    scene.run()
    assert scene.winner() == PROVIDERS[1]
    assert scene.certificate().task.bid_count == 1
    assert scene.certificate().commits[0].commit.provider == PROVIDERS[1]


def test_another_bid_never_swaps_two_others() -> None:
    without, with_it = MatchScene(), MatchScene(context=context_for([profile_of(n) for n in range(4)]))
    for scene in (without, with_it):
        scene.start()
        for number in range(3):
            scene.bid(bid_for(number))
    with_it.bid(bid_for(3, price=1_050_000))
    without.run()
    with_it.run()
    ranked = [leaf.provider for leaf in with_it.certificate().leaves]
    assert ranked.index(PROVIDERS[0]) < ranked.index(PROVIDERS[1])
    assert with_it.certificate().task.third != NO_LEAF
    assert [leaf.provider for leaf in without.certificate().leaves] == list(PROVIDERS[:3])


def test_bidders_know_how_far_they_have_come() -> None:
    scene = a_match()
    scene.bid(bid_for(0), delay_ms=3_000)
    scene.run()
    assert scene.bidders[1].state is BidState.REVEALED
    scene.run(until=lambda: 0 in scene.bidders, for_ms=5_000)
    assert scene.bidders[0].state is BidState.SENT
