"""Faulty validators and strangers: a match at most a round later, never two certificates, nothing believed unsigned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from sparewatt.market.match.model import MatchStage
from sparewatt.protocol.contracts.match import NO_LEAF, RoundReached
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    MatchStatus,
    MissingBids,
    Proposal,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.typed_message import contract_domain, struct_hash
from tests.unit.market.match.liars import (
    book_for,
    commit_list,
    proposal_for,
    reveal_list,
    signed_vote,
    swapped,
    task_for,
)
from tests.unit.market.match.match_scene import (
    ORDER_ID,
    PROVIDERS,
    VOTE_KEYS,
    Filter,
    MatchScene,
    bid_for,
    commit_for,
    context_for,
    key_of,
    leader,
    signed_by,
)

CONTEXT = context_for()
LIAR = leader(CONTEXT)
OTHERS = [number for number in range(4) if number != LIAR]
BIDS = [bid_for(number) for number in range(3)]


def honest_only(scene: MatchScene) -> MatchScene:
    """The liar's own machine is honest inside; what counts is what the others hold."""
    del scene.validators[LIAR]
    return scene


def a_match(through: Filter) -> MatchScene:
    scene = MatchScene(context=CONTEXT, through=through)
    scene.start()
    for bid in BIDS:
        scene.bid(bid)
    scene.run(until=lambda: all(scene.validators[number].certificate for number in OTHERS))
    return honest_only(scene)


def proposing(lie: Callable[[Proposal], Proposal | None]) -> Filter:
    """In its round the liar sends this proposal instead of its own."""

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        if sender != LIAR or not isinstance(message, Proposal | SignedVote):
            return [message]
        told = lie(message) if isinstance(message, Proposal) else None
        return [told] if told is not None else []

    return through


def retold(proposal: Proposal, told: Proposal) -> Proposal:
    return replace(told, commits=proposal.commits, commit_lists=proposal.commit_lists)


LIES: dict[str, tuple[Callable[[Proposal], Proposal], int]] = {
    "the second best wins": (
        lambda true: retold(true, proposal_for(CONTEXT, LIAR, BIDS, change=swapped)),
        VoteRefusal.WRONG_RESULT,
    ),
    "nobody wins": (
        lambda true: retold(
            true,
            proposal_for(
                CONTEXT, LIAR, BIDS, change=lambda task: replace(task, first=NO_LEAF, second=NO_LEAF, third=NO_LEAF)
            ),
        ),
        VoteRefusal.WRONG_RESULT,
    ),
    "the best bid is missing": (
        lambda true: retold(true, proposal_for(CONTEXT, LIAR, BIDS[1:])),
        VoteRefusal.MISSING_BID,
    ),
    "no bid is there": (lambda true: retold(true, proposal_for(CONTEXT, LIAR, [])), VoteRefusal.MISSING_BID),
    "another price": (
        lambda true: retold(true, proposal_for(CONTEXT, LIAR, [bid_for(0, price=5), *BIDS[1:]])),
        VoteRefusal.UNCERTIFIED_BID,
    ),
    "another score": (
        lambda true: retold(
            true,
            proposal_for(
                CONTEXT,
                LIAR,
                BIDS,
                leaves=(replace(true.leaves[0], score=true.leaves[0].score + 1), *true.leaves[1:]),
            ),
        ),
        VoteRefusal.WRONG_RESULT,
    ),
    "a bid that nobody committed": (
        lambda true: retold(true, proposal_for(CONTEXT, LIAR, [bid_for(0, salt="other"), *BIDS[1:]])),
        VoteRefusal.UNCERTIFIED_BID,
    ),
    "another snapshot": (
        lambda true: retold(
            true, proposal_for(CONTEXT, LIAR, BIDS, change=lambda task: replace(task, snapshot_epoch=2))
        ),
        VoteRefusal.WRONG_CONTEXT,
    ),
    "another stake version": (
        lambda true: retold(
            true, proposal_for(CONTEXT, LIAR, BIDS, change=lambda task: replace(task, stake_version=9))
        ),
        VoteRefusal.WRONG_CONTEXT,
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lying_leader_gets_no_vote_and_the_next_leader_is_right(name: str) -> None:
    lie, code = LIES[name]
    scene = a_match(proposing(lie))
    assert scene.certificate().round == 1
    assert [leaf.provider for leaf in scene.certificate().leaves] == list(PROVIDERS[:3])
    assert {refused for _, tag, refused in scene.codes if tag == "proposal"} == {code}
    for match in scene.validators.values():
        notes = [(note.code, note.subject) for note in match.record().notes if note.what == "proposal"]
        assert notes == [(code, VOTE_KEYS[LIAR].address)]


def test_a_leader_that_says_nothing_is_passed_over() -> None:
    scene = a_match(proposing(lambda _: None))
    assert scene.certificate().round == 1


def test_a_voter_answers_with_the_bids_that_are_missing() -> None:
    asked: list[MissingBids] = []

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        if isinstance(message, MissingBids):
            asked.append(message)
        return proposing(lambda true: retold(true, proposal_for(CONTEXT, LIAR, BIDS[1:])))(sender, to, message)

    a_match(through)
    assert len(asked) == 3
    assert {len(missing.reveal_list.bids) for missing in asked} == {3}
    assert {len(missing.reveal_list.commit_lists) for missing in asked} == {4}


def test_different_proposals_to_different_peers_make_no_two_certificates() -> None:
    """With the liar's own vote each task has at most two of the three that a quorum needs."""
    right = proposal_for(CONTEXT, LIAR, BIDS)

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        if sender == LIAR and isinstance(message, Proposal):
            lie = proposal_for(CONTEXT, LIAR, BIDS, change=swapped)
            return [retold(message, lie if to == OTHERS[0] else right)]
        return [message]

    scene = a_match(through)
    assert len(scene.task_hashes()) == 1
    assert scene.winner() == PROVIDERS[0]


def test_a_validator_that_votes_twice_is_seen_by_both_votes() -> None:
    scene = MatchScene(context=CONTEXT)
    match = scene.validators[OTHERS[0]]
    match.start(0)
    for task_hash in (b"\1" * 32, b"\2" * 32, b"\3" * 32):
        match.receive(signed_vote(CONTEXT, LIAR, task_hash=task_hash), now_ms=1)
    assert [each.vote.task_hash for each in match.votes()] == [b"\1" * 32, b"\2" * 32]


# lists


def test_a_validator_that_sends_each_peer_another_list_does_not_stop_the_match() -> None:
    """Provider 0 sends its commit to two honest validators, and the liar shows a list naming it to one of them only."""
    scene = MatchScene(context=CONTEXT)
    commits = [commit_for(bid) for bid in BIDS]

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        if sender != LIAR:
            return [message]
        if isinstance(message, SignedCommitList):
            own = commit_list(CONTEXT, LIAR, commits if to == OTHERS[0] else commits[1:])
            return [own]
        if isinstance(message, SignedRevealList):
            return [reveal_list(CONTEXT, LIAR, BIDS if to == OTHERS[0] else BIDS[1:])]
        return []

    scene.through = through
    scene.start()
    for bid in BIDS[1:]:
        scene.bid(bid)
    scene.say(commits[0], to=OTHERS[:2])
    scene.say(BIDS[0], to=OTHERS, delay_ms=850)
    scene.run(until=lambda: all(scene.validators[number].certificate for number in OTHERS))
    honest_only(scene)
    assert scene.certificate().round <= 3
    assert [len(match.commit_lists()) for match in scene.validators.values()] == [5, 5, 5]


def test_lists_that_contradict_each_other_are_kept_and_relayed() -> None:
    scene = MatchScene(context=CONTEXT)
    scene.start()
    commits = [commit_for(bid) for bid in BIDS]
    scene.say(commit_list(CONTEXT, LIAR, commits[:1]), to=(OTHERS[0],), delay_ms=5)
    scene.say(commit_list(CONTEXT, LIAR, commits[:2]), to=(OTHERS[1],), delay_ms=5)
    del scene.validators[LIAR]
    for bid in BIDS:
        scene.bid(bid, delay_ms=20)
    scene.run()
    assert scene.certificate().task.bid_count == 3
    for match in scene.validators.values():
        assert len(match.commit_lists()) == 5


# strangers


def test_strangers_are_refused_before_anything_is_kept() -> None:
    scene = MatchScene(context=CONTEXT)
    match = scene.validators[0]
    match.start(0)
    stranger = key_of("a stranger")
    commits = commit_list(CONTEXT, 1, [commit_for(BIDS[0])])
    reveals = reveal_list(CONTEXT, 1, BIDS[:1])
    vote = signed_vote(CONTEXT, 1, task_hash=bytes(32))
    proposal = proposal_for(CONTEXT, 1, BIDS)
    reached = RoundReached(ORDER_ID, 0, 40)
    forged: list[MatchMessage] = [
        replace(commits, signature=signed_by(stranger, commits.list)),
        replace(reveals, signature=signed_by(stranger, reveals.list)),
        replace(vote, signature=signed_by(stranger, vote.vote)),
        replace(proposal, vote=replace(vote, signature=signed_by(stranger, vote.vote))),
        MissingBids(0, replace(reveals, signature=signed_by(stranger, reveals.list))),
        MatchStatus(reached, signed_by(stranger, reached), bytes(32), (), ()),
        MatchStatus(reached, bytes(65), bytes(32), (), ()),
    ]
    for message in forged:
        out = match.receive(message, now_ms=1)
        assert out.code == MessageRefusal.BAD_SIGNATURE, message.tag
        assert (out.records, out.broadcast, out.replies) == ([], [], [])
    record = match.record()
    assert (record.commits, record.commit_lists, record.reveal_lists, record.votes) == ((), (), (), ())
    assert match.round == 0


def test_a_vote_for_another_chain_counts_for_nothing() -> None:
    scene = MatchScene(context=CONTEXT)
    match = scene.validators[0]
    match.start(0)
    vote = signed_vote(CONTEXT, 1, task_hash=bytes(32))
    elsewhere = contract_domain(chain_id=1, contract="0x" + "5a" * 20)
    out = match.receive(replace(vote, signature=signed_by(VOTE_KEYS[1], vote.vote, domain=elsewhere)), now_ms=1)
    assert out.code == MessageRefusal.BAD_SIGNATURE
    assert match.votes() == ()


def test_messages_of_another_order_or_attempt_are_refused() -> None:
    other = replace(CONTEXT, attempt=1)
    match = MatchScene(context=CONTEXT).validators[0]
    match.start(0)
    reached = RoundReached(ORDER_ID, 1, 0)
    for message in (
        commit_list(other, 1, []),
        reveal_list(other, 1, []),
        signed_vote(other, 1, task_hash=bytes(32)),
        proposal_for(other, LIAR, []),
        MatchStatus(reached, signed_by(VOTE_KEYS[1], reached), bytes(32), (), ()),
    ):
        assert match.receive(message, now_ms=1).code == MessageRefusal.WRONG_ORDER_OR_ATTEMPT, message.tag


def test_only_the_leader_proposes() -> None:
    match = MatchScene(context=CONTEXT).validators[OTHERS[0]]
    match.start(0)
    out = match.receive(proposal_for(CONTEXT, OTHERS[1], []), now_ms=1)
    assert out.code == VoteRefusal.NOT_LEADER


def test_a_proposal_that_a_relay_has_changed_is_refused() -> None:
    match = MatchScene(context=CONTEXT).validators[OTHERS[0]]
    match.start(0)
    right = proposal_for(CONTEXT, LIAR, BIDS)
    other = task_for(CONTEXT, book_for(CONTEXT, BIDS[1:]))
    for changed in (
        replace(right, leaves=right.leaves[1:]),
        replace(right, task=other),
        replace(right, leaves=(right.leaves[0],) * 3),
        replace(right, leaves=right.leaves * 100),
    ):
        assert match.receive(changed, now_ms=1).code == VoteRefusal.WRONG_RESULT
    assert match.record().proposals == ()


# rounds


def status(number: int, round_: int) -> MatchStatus:
    reached = RoundReached(ORDER_ID, 0, round_)
    return MatchStatus(reached, signed_by(VOTE_KEYS[number], reached), bytes(32), (), ())


def test_one_validator_cannot_hurry_the_others_and_two_of_four_can() -> None:
    scene = MatchScene(context=CONTEXT, silent=frozenset({2, 3}))
    scene.start()
    scene.bid(BIDS[0])
    match = scene.validators[0]
    scene.run(until=lambda: match.phase is MatchStage.VOTE)
    match.receive(status(2, 4_000_000), now_ms=scene.now_ms)
    assert match.round == 0
    out = match.receive(status(3, 7), now_ms=scene.now_ms)
    assert match.round == 7
    assert any(isinstance(each, MatchStatus) and each.reached.round == 7 for each in out.broadcast)
    match.receive(status(3, 3), now_ms=scene.now_ms)
    assert match.round == 7


def test_a_status_is_answered_with_what_its_sender_lacks() -> None:
    scene = MatchScene(context=CONTEXT)
    scene.start()
    for bid in BIDS:
        scene.bid(bid)
    scene.run(until=lambda: all(scene.validators[number].phase is MatchStage.VOTE for number in range(4)))
    match = scene.validators[OTHERS[0]]
    scene.run(until=lambda: len(match.reveal_lists()) == 4)
    replies = match.receive(status(OTHERS[1], 0), now_ms=scene.now_ms).replies
    assert [each.tag for each in replies if each.tag != "proposal"] == ["commit_list"] * 4 + ["reveal_list"] * 4
    assert all(len(each.commits) == 3 for each in replies if isinstance(each, SignedCommitList))
    assert all(len(each.bids) == 3 for each in replies if isinstance(each, SignedRevealList))
    scene.run()
    replies = match.receive(status(OTHERS[1], 0), now_ms=scene.now_ms).replies
    assert [each.tag for each in replies[:4]] == ["vote", "vote", "vote", "proposal"]


def test_a_validator_that_missed_everything_is_brought_up_to_date() -> None:
    """It hears nothing until the others have a certificate, and learns it by its first status."""
    late, cut = OTHERS[0], [True]

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        return [] if cut[0] and late in (sender, to) else [message]

    scene = MatchScene(context=CONTEXT, through=through)
    scene.start()
    for bid in BIDS:
        scene.bid(bid)
    scene.run(until=lambda: all(scene.validators[number].certificate for number in range(4) if number != late))
    assert scene.validators[late].certificate is None
    cut[0] = False
    scene.run(for_ms=1_000)
    assert len(scene.task_hashes()) == 1
    assert scene.is_certified()


def test_a_relay_that_leaves_bodies_out_does_not_stop_a_voter() -> None:
    """The liar strips bids and commits from what it relays; the voter asks again and gets them from others."""

    def through(sender: int, to: int, message: MatchMessage) -> Iterable[MatchMessage]:
        if sender != LIAR:
            return [message]
        match message:
            case Proposal():
                return [replace(message, bids=(), commits=(), commit_lists=())]
            case SignedRevealList():
                return [replace(message, bids=(), commit_lists=())]
            case SignedCommitList():
                return [replace(message, commits=())]
        return [message]

    scene = a_match(through)
    assert scene.certificate().round == 0
    assert scene.winner() == PROVIDERS[0]


def test_every_certificate_of_a_round_is_the_same() -> None:
    scene = a_match(lambda sender, to, message: [message])
    certificates = {struct_hash(match.certificate.task) for match in scene.validators.values() if match.certificate}
    assert len(certificates) == 1
