"""Proposals and votes: what is kept of liars, and when there is a certificate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.ballots import ROUNDS_AHEAD, ROUNDS_BEHIND, Ballots, read_proposal
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.contracts.match_messages import Proposal
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.market.match.liars import proposal_for, signed_vote, swapped
from tests.unit.market.match.match_scene import PROVIDERS, leader
from tests.unit.market.match.test_commit_phase import VOTERS
from tests.unit.market.match.test_reveal_phase import BIDS, CONTEXT, phases

LEADER = leader(CONTEXT)
OTHERS = [number for number in range(4) if number != LEADER]
TASKS = [bytes([number]) * 32 for number in range(1, 6)]


def ballots() -> tuple[CommitPhase, Ballots]:
    commits, _ = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    return commits, Ballots(CONTEXT, commits)


def propose(held: Ballots, proposal: Proposal, *, number: int = LEADER, current: int = 0) -> int:
    return held.take_proposal(proposal, signer=VOTERS[number], current=current)


def vote(held: Ballots, number: int, task_hash: bytes, *, round_: int = 0, current: int = 0) -> int:
    signed = signed_vote(CONTEXT, number, task_hash=task_hash, round_=round_)
    return held.take_vote(signed, signer=VOTERS[number], current=current)


def test_a_proposal_and_two_more_votes_of_four_make_a_certificate() -> None:
    _, held = ballots()
    proposal = proposal_for(CONTEXT, LEADER, BIDS)
    task_hash = struct_hash(proposal.task)
    assert propose(held, proposal) == 0
    vote(held, OTHERS[0], task_hash)
    assert held.certificate() is None
    vote(held, OTHERS[1], task_hash)
    found = held.certificate()
    assert found is not None
    _, certificate = found
    assert [leaf.provider for leaf in certificate.leaves] == list(PROVIDERS[:3])
    assert [commit.commit.provider for commit in certificate.commits] == list(PROVIDERS[:3])
    assert list(certificate.signers) == sorted(VOTERS[number] for number in (LEADER, *OTHERS[:2]))


def test_votes_of_two_rounds_do_not_add_up() -> None:
    _, held = ballots()
    proposal = proposal_for(CONTEXT, LEADER, BIDS)
    task_hash = struct_hash(proposal.task)
    propose(held, proposal)
    vote(held, OTHERS[0], task_hash)
    vote(held, OTHERS[1], task_hash, round_=1)
    assert held.certificate() is None


def test_votes_may_come_before_their_proposal() -> None:
    _, held = ballots()
    proposal = proposal_for(CONTEXT, LEADER, BIDS)
    for number in OTHERS:
        vote(held, number, struct_hash(proposal.task))
    assert held.certificate() is None
    propose(held, proposal)
    assert held.certificate() is not None


def test_without_a_candidates_commit_there_is_no_certificate_yet() -> None:
    commits, _ = phases({})
    held = Ballots(CONTEXT, commits)
    proposal = proposal_for(CONTEXT, LEADER, BIDS)
    propose(held, proposal)
    for number in OTHERS:
        vote(held, number, struct_hash(proposal.task))
    assert held.certificate() is None


def test_a_certificate_of_no_match_needs_no_commits() -> None:
    commits, _ = phases({})
    held = Ballots(CONTEXT, commits)
    proposal = proposal_for(CONTEXT, LEADER, [])
    propose(held, proposal)
    for number in OTHERS[:2]:
        vote(held, number, struct_hash(proposal.task))
    found = held.certificate()
    assert found is not None
    assert (found[1].leaves, found[1].task.first) == ((), NO_LEAF)


# bounds


def test_two_votes_of_a_liar_are_kept_and_a_third_if_others_vote_so() -> None:
    _, held = ballots()
    for task_hash in TASKS:
        assert vote(held, LEADER, task_hash) == 0
    assert [each.vote.task_hash for each in held.votes()] == TASKS[:2]
    for number in OTHERS[:2]:
        vote(held, number, TASKS[4])
    vote(held, LEADER, TASKS[3])
    vote(held, LEADER, TASKS[4])
    mine = [each.vote.task_hash for each in held.votes()]
    assert mine.count(TASKS[4]) == 3
    assert TASKS[3] not in mine


def test_two_proposals_of_a_liar_are_kept_and_a_third_if_others_vote_for_it() -> None:
    _, held = ballots()
    told = [proposal_for(replace(CONTEXT, stake_version=number), LEADER, BIDS) for number in range(4)]
    for proposal in told:
        assert propose(held, proposal) == 0
    assert len(held.proposed(0)) == 2
    for number in OTHERS[:2]:
        vote(held, number, struct_hash(told[3].task))
    propose(held, told[2])
    assert len(held.proposed(0)) == 2
    propose(held, told[3])
    assert [each.task for each in held.proposed(0)] == [told[0].task, told[1].task, told[3].task]


def test_rounds_far_away_are_not_kept() -> None:
    _, held = ballots()
    assert vote(held, 1, TASKS[0], round_=100 - ROUNDS_BEHIND - 1, current=100) == MessageRefusal.LATE
    assert vote(held, 1, TASKS[0], round_=100 + ROUNDS_AHEAD + 1, current=100) == 0
    assert list(held.votes()) == []
    for round_ in (100 - ROUNDS_BEHIND, 100, 100 + ROUNDS_AHEAD):
        vote(held, 1, TASKS[0], round_=round_, current=100)
    assert len(list(held.votes())) == 3
    held.forget_before(100 + ROUNDS_AHEAD)
    assert [each.vote.round for each in held.votes()] == [100, 100 + ROUNDS_AHEAD]


def test_a_proposal_far_ahead_is_not_kept() -> None:
    _, held = ballots()
    round_ = 4 * ROUNDS_AHEAD
    assert propose(held, proposal_for(CONTEXT, LEADER, BIDS, round_=round_)) == 0
    assert held.proposed(round_) == ()


def test_only_the_rounds_leader_proposes() -> None:
    _, held = ballots()
    assert propose(held, proposal_for(CONTEXT, OTHERS[0], BIDS), number=OTHERS[0]) == VoteRefusal.NOT_LEADER
    assert propose(held, proposal_for(CONTEXT, LEADER, BIDS, round_=1)) == VoteRefusal.NOT_LEADER
    assert propose(held, proposal_for(CONTEXT, LEADER, BIDS, round_=4)) == 0
    assert next(iter(held.votes())).vote.round == 4


def test_a_vote_of_another_attempt_is_refused() -> None:
    _, held = ballots()
    signed = signed_vote(replace(CONTEXT, attempt=2), 1, task_hash=TASKS[0])
    assert held.take_vote(signed, signer=VOTERS[1], current=0) == MessageRefusal.WRONG_ORDER_OR_ATTEMPT


@pytest.mark.parametrize(
    "change",
    [
        lambda right: replace(right, leaves=right.leaves[:-1]),
        lambda right: replace(right, leaves=()),
        lambda right: replace(right, leaves=(right.leaves[0],) * 3),
        lambda right: replace(right, leaves=(replace(right.leaves[0], score=1), *right.leaves[1:])),
        lambda right: replace(right, leaves=(replace(right.leaves[0], salt=b""), *right.leaves[1:])),
        lambda right: replace(right, task=swapped(right.task)),
        lambda right: replace(right, task=replace(right.task, bid_count=2)),
    ],
)
def test_what_does_not_hash_to_the_vote_is_no_proposal(change: object) -> None:
    right = proposal_for(CONTEXT, LEADER, BIDS)
    assert read_proposal(right) is not None
    assert read_proposal(change(right)) is None  # type: ignore[operator]


def test_a_candidate_outside_the_tree_is_no_proposal() -> None:
    told = proposal_for(CONTEXT, LEADER, BIDS, change=lambda task: replace(task, third=7))
    assert read_proposal(told) is None


def test_leaves_may_come_in_any_order() -> None:
    right = proposal_for(CONTEXT, LEADER, BIDS)
    found = read_proposal(replace(right, leaves=right.leaves[::-1]))
    assert found is not None
    assert found.book.leaves == right.leaves
    assert [bid.provider for bid in found.bids()] == [leaf.provider for leaf in right.leaves]
