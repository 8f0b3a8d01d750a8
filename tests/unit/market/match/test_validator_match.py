"""The match of four validators in memory: calm, with silent ones, without bids; and what each phase waits for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sparewatt.market.match.model import BidState, MatchStage, MatchTiming
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.contracts.match_messages import SignedCommitList, SignedRevealList, SignedVote
from sparewatt.protocol.contracts.merkle import verify_proof
from sparewatt.protocol.contracts.reasons import BidStatus, MessageRefusal
from sparewatt.protocol.signing import recover_address
from sparewatt.protocol.typed_message import message_digest, struct_hash
from tests.order_terms import order_terms
from tests.unit.market.match.match_scene import (
    DOMAIN,
    PROVIDERS,
    VOTE_KEYS,
    MatchScene,
    bid_for,
    commit_for,
    context_for,
    decline_for,
    key_of,
    leader,
    profile_of,
)


def a_match(*bidders: int, **arguments: object) -> MatchScene:
    scene = MatchScene(**arguments)  # type: ignore[arg-type]
    scene.start()
    for number in bidders:
        scene.bid(bid_for(number))
    return scene


def test_a_calm_match_has_one_task_on_all_validators() -> None:
    scene = a_match(0, 1, 2)
    scene.run()
    assert [leaf.provider for leaf in scene.certificate().leaves] == list(PROVIDERS[:3])
    assert {match.round for match in scene.validators.values()} == {0}
    assert scene.codes == []
    assert scene.now_ms < 1_300
    assert all(bidder.state is BidState.REVEALED for bidder in scene.bidders.values())


def test_a_certificate_is_what_the_contract_checks() -> None:
    scene = a_match(0, 1, 2)
    scene.run()
    certificate = scene.certificate()
    task = certificate.task
    for place, leaf, path, commit in zip(
        (task.first, task.second, task.third), certificate.leaves, certificate.paths, certificate.commits, strict=True
    ):
        hashed = struct_hash(leaf)
        assert verify_proof(root=task.bid_root, count=task.bid_count, leaf=hashed, index=place, path=path)
        signer = recover_address(message_digest(DOMAIN, commit.commit), commit.signature)
        assert signer == scene.context.node_keys[leaf.provider]
    signers = [recover_address(message_digest(DOMAIN, each.vote), each.signature) for each in certificate.votes]
    assert signers == sorted(set(signers)) == list(certificate.signers)
    assert sum(scene.context.weights[signer] for signer in signers) >= 3
    assert {each.vote.task_hash for each in certificate.votes} == {struct_hash(task)}


def test_bids_in_any_order_give_the_same_task() -> None:
    tasks = set()
    for order in itertools.permutations(range(3)):
        scene = MatchScene()
        scene.start()
        for place, number in enumerate(order):
            scene.bid(bid_for(number), delay_ms=place * 7)
        scene.run()
        tasks.add(struct_hash(scene.certificate().task))
    assert len(tasks) == 1


def test_each_list_is_signed_once_and_each_round_voted_in_once() -> None:
    scene = a_match(0, 1, 2)
    scene.run()
    for records in scene.records.values():
        assert [type(record) for record in records] == [SignedCommitList, SignedRevealList, SignedVote]


@pytest.mark.parametrize("silent", range(4))
def test_one_silent_validator_costs_a_round_at_most(silent: int) -> None:
    scene = a_match(0, 1, 2, silent=frozenset({silent}))
    scene.run()
    assert scene.winner() == PROVIDERS[0]
    assert scene.certificate().task.bid_count == 3
    assert scene.certificate().round == (1 if silent == leader(scene.context) else 0)


def test_two_silent_validators_of_four_stop_the_match() -> None:
    scene = a_match(0, 1, silent=frozenset({0, 1}))
    scene.run(for_ms=30_000)
    assert not any(match.certificate for match in scene.validators.values())
    assert all(match.round > 4 for match in scene.validators.values())


def test_exactly_two_thirds_are_no_quorum() -> None:
    context = context_for(weights=(2, 2, 1, 1))
    without_third = MatchScene(context=context, silent=frozenset({0}))
    without_third.start()
    without_third.bid(bid_for(0))
    without_third.run(for_ms=10_000)
    assert not any(match.certificate for match in without_third.validators.values())


def test_heavier_validators_suffice_alone() -> None:
    scene = MatchScene(context=context_for(weights=(40, 30, 20, 10)), silent=frozenset({3}))
    scene.start()
    scene.bid(bid_for(1))
    scene.run()
    assert scene.winner() == PROVIDERS[1]


def test_the_leader_submits_at_once_and_the_others_in_their_rank() -> None:
    scene = a_match(0)
    scene.run(until=lambda: len(scene.submitted) == 4)
    first = leader(scene.context)
    assert [number for _, number, _ in scene.submitted] == [(first + rank) % 4 for rank in range(4)]
    waits = [at - scene.submitted[0][0] for at, _, _ in scene.submitted]
    assert [round(wait, -2) for wait in waits] == [0, 100, 200, 300]


def test_a_settled_match_says_nothing_more() -> None:
    scene = a_match(0)
    scene.run(until=lambda: bool(scene.submitted))
    match = scene.validators[0]
    assert match.settled(scene.now_ms).notes[0].what == "over"
    assert match.settled(scene.now_ms).notes == []
    assert (match.phase, match.next_tick_ms) == (MatchStage.OVER, None)
    out = match.receive(decline_for(1), now_ms=scene.now_ms + 1)
    assert (out.code, out.broadcast, out.replies) == (MessageRefusal.WRONG_ORDER_OR_ATTEMPT, [], [])
    assert match.tick(scene.now_ms + 60_000).broadcast == []


# no match


def test_without_bids_an_empty_tree_is_certified() -> None:
    scene = a_match()
    scene.run()
    task = scene.certificate().task
    assert (task.bid_count, task.bid_root, task.first) == (0, bytes(32), NO_LEAF)
    assert (scene.certificate().leaves, scene.certificate().commits) == ((), ())
    assert scene.now_ms >= 1_000 + 800, "the window was open to the end"


def test_bids_that_are_all_rejected_are_in_the_tree_with_their_reasons() -> None:
    terms = order_terms(max_price_uusd=500_000)
    scene = a_match(0, 1, context=context_for(terms=terms))
    scene.run()
    task = scene.certificate().task
    assert (task.bid_count, task.first, task.second) == (2, NO_LEAF, NO_LEAF)
    (proposal, *_) = scene.validators[0].record().proposals
    assert {leaf.status for leaf in proposal.leaves} == {BidStatus.OVER_MAX_PRICE}


def test_a_bid_of_an_ineligible_profile_is_certified_as_rejected() -> None:
    profiles = [profile_of(0), profile_of(1, country=50)]
    scene = a_match(0, 1, context=context_for(profiles, terms=order_terms(countries=1 << 49)))
    scene.bidders.clear()
    scene.run()
    (proposal, *_) = scene.validators[0].record().proposals
    statuses = {leaf.provider: leaf.status for leaf in proposal.leaves}
    assert statuses[PROVIDERS[0]] == BidStatus.ELIGIBLE
    assert scene.winner() == PROVIDERS[0]
    assert statuses.get(PROVIDERS[1], BidStatus.COUNTRY) == BidStatus.COUNTRY


# windows


def test_commits_close_early_when_everybody_eligible_has_answered() -> None:
    scene = a_match(0, 1)
    scene.say(decline_for(2), delay_ms=20)
    scene.run()
    assert scene.now_ms < 1_000 + 400
    assert [signed.decline.provider for signed in scene.validators[0].declines()] == [PROVIDERS[2]]


def test_a_forged_decline_closes_nothing() -> None:
    scene = a_match(0, 1)
    scene.say(decline_for(2, key=key_of("somebody")), delay_ms=20)
    scene.run()
    assert scene.now_ms > 1_000 + 800
    assert (0, "decline", MessageRefusal.BAD_SIGNATURE) in scene.codes
    assert scene.validators[0].declines() == ()


def test_without_early_close_the_windows_run_to_their_ends() -> None:
    scene = a_match(0, 1, 2, timing=MatchTiming(early_close=False))
    scene.run()
    assert scene.now_ms > 1_000 + 800 + 80
    notes = {note.what: note.at_ms for note in scene.validators[0].record().notes}
    assert (notes["reveal"], notes["vote"]) == (800, 1_200)


def test_an_early_close_leaves_bidders_the_whole_time_to_reveal() -> None:
    """They may reveal only when a quorum has closed, and two validators have not seen the order yet."""
    match = MatchScene(timing=MatchTiming(early_close=True)).validators[0]
    match.start(0)
    for number in range(3):
        match.receive(commit_for(bid_for(number)), now_ms=10)
    stages = [match.phase]
    for now_ms in (800 + 400 - 1, 800 + 400):
        match.tick(now_ms)
        stages.append(match.phase)
    assert stages == [MatchStage.REVEAL, MatchStage.REVEAL, MatchStage.VOTE]


def test_an_ineligible_provider_is_not_waited_for() -> None:
    profiles = [profile_of(0), profile_of(1, country=50)]
    scene = a_match(0, context=context_for(profiles, terms=order_terms(countries=1 << 49)))
    scene.run()
    assert scene.now_ms < 1_000 + 400


def test_a_provider_without_a_node_key_is_not_waited_for() -> None:
    context = context_for()
    keys = {provider: key for provider, key in context.node_keys.items() if provider != PROVIDERS[2]}
    scene = a_match(0, 1, context=replace(context, node_keys=keys))
    scene.run()
    assert scene.now_ms < 1_000 + 400


def test_a_validator_that_sees_the_lookup_late_takes_the_commits_of_others() -> None:
    scene = MatchScene()
    scene.start(delays_ms={3: 700})
    for number in range(2):
        scene.bid(bid_for(number), commit=commit_for(bid_for(number)))
    scene.run()
    assert scene.certificate().task.bid_count == 2
    (own,) = [signed for signed in scene.records[3] if isinstance(signed, SignedCommitList)]
    assert len(own.list.bid_ids) == 2


def test_lists_of_more_than_a_third_close_the_window() -> None:
    scene = MatchScene(context=context_for([profile_of(n) for n in range(4)]))
    match = scene.validators[0]
    match.start(0)
    others = [MatchScene(context=scene.context, timing=MatchTiming(early_close=True)).validators[n] for n in (1, 2)]
    lists = []
    for other in others:
        other.start(0)
        lists += other.tick(800).records
    assert match.receive(lists[0], now_ms=10).records == []
    assert match.phase is MatchStage.COMMIT
    assert len(match.receive(lists[1], now_ms=11).records) >= 1
    assert match.phase is not MatchStage.COMMIT


def test_reveal_lists_of_more_than_a_third_close_the_window_after_a_while() -> None:
    """Provider 2 committed everywhere and reveals to validators 0 and 1 only."""
    scene = MatchScene(timing=MatchTiming(early_close=True))
    scene.start()
    for number in range(2):
        scene.bid(bid_for(number))
    scene.say(commit_for(bid_for(2)))
    scene.say(bid_for(2), to=(0, 1), delay_ms=20)
    scene.run()
    assert scene.certificate().task.bid_count == 3
    assert scene.now_ms < 1_000 + 400


def test_a_key_without_weight_takes_no_part() -> None:
    with pytest.raises(ValueError, match="no weight"):
        ValidatorMatch(
            context_for(weights=(0, 1, 1, 1)),
            key=VOTE_KEYS[0],
            timing=MatchTiming(),
            standing=MatchScene().standing,
        )


def test_the_version_grows_with_what_others_can_see() -> None:
    scene = a_match(0)
    match = scene.validators[0]
    scene.run(until=lambda: match.version > 0)
    before = match.version
    match.receive(decline_for(1), now_ms=scene.now_ms)
    assert match.version == before + 1
    match.receive(decline_for(1), now_ms=scene.now_ms)
    assert match.version == before + 1


def test_nothing_of_a_bid_is_in_the_record_before_the_own_reveal_list() -> None:
    scene = a_match(0, 1, 2)
    match = scene.validators[0]
    scene.run(until=lambda: match.phase is MatchStage.REVEAL and scene.bidders[0].may_reveal)
    match.receive(bid_for(0), now_ms=scene.now_ms)
    if match.phase is MatchStage.REVEAL:
        assert match.record().reveals == ()
    assert len(match.record().commits) == 3
    scene.run()
    assert len(match.record().reveals) == 3


def test_a_validator_knows_whose_commits_it_holds() -> None:
    scene = a_match(0)
    scene.run()
    assert scene.validators[1].holds_commit_of(PROVIDERS[0].upper().replace("0X", "0x"))
    assert not scene.validators[1].holds_commit_of(PROVIDERS[1])
