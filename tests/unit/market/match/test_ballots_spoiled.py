"""What is kept of a leader's proposal that is no result, or is none any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.ballots import DIFFERENT_MAX, Ballots
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.model import BidderStanding
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.market.rule import BidBook
from sparewatt.protocol.contracts.match_messages import Proposal
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.reasons import VoteRefusal
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.by_hand import USD, HandMatch


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of({0: 2 * USD, 1: USD, 2: 5 * USD // 2})


@pytest.fixture
def ballots(match: HandMatch) -> Ballots:
    context = match.cast.context
    signatures = SignatureCheck(context.domain, known=context.weights)
    return Ballots(context, CommitPhase(context, signatures, lambda _: BidderStanding.GOOD))


def take(match: HandMatch, ballots: Ballots, proposal: Proposal) -> int:
    leader = ballots.leader_of(0)
    number = next(i for i, key in enumerate(match.cast.vote_keys) if key.address.lower() == leader)
    vote = match.vote(number, proposal.task)
    return ballots.take_proposal(replace(proposal, vote=vote), signer=leader, current=0)


def turned(match: HandMatch, places: tuple[int, ...]) -> BidBook:
    book = match.book()
    leaves = tuple(book.leaves[i] for i in places)
    return replace(book, leaves=leaves, tree=merkle_tree([struct_hash(leaf) for leaf in leaves]))


@pytest.mark.parametrize("places", [(2, 1, 0), (0, 0, 1)])
def test_leaves_out_of_order_or_twice_are_kept_as_proof_and_never_proposed(
    match: HandMatch, ballots: Ballots, places: tuple[int, ...]
) -> None:
    proposal = match.proposal(0, turned(match, places))
    assert take(match, ballots, proposal) == VoteRefusal.WRONG_RESULT
    assert ballots.proposed(0) == ()
    (kept,) = ballots.spoiled()
    assert (kept.task, kept.leaves) == (proposal.task, proposal.leaves)


def test_a_candidate_outside_the_tree_is_kept_as_proof(match: HandMatch, ballots: Ballots) -> None:
    book = match.book()
    proposal = match.proposal(0, book, replace(match.task(book), second=7))
    assert take(match, ballots, proposal) == VoteRefusal.WRONG_RESULT
    assert [each.task.second for each in ballots.spoiled()] == [7]


def test_leaves_that_the_vote_does_not_bind_prove_nothing(match: HandMatch, ballots: Ballots) -> None:
    """A relay may have changed them."""
    honest = match.proposal(0, match.book())
    for leaves in (honest.leaves[:2], (*honest.leaves[:2], replace(honest.leaves[2], score=1))):
        assert take(match, ballots, replace(honest, leaves=leaves)) == VoteRefusal.WRONG_RESULT
    assert list(ballots.spoiled()) == []
    assert take(match, ballots, honest) == 0


def test_a_leader_cannot_fill_the_memory_and_old_rounds_are_forgotten(match: HandMatch, ballots: Ballots) -> None:
    book = match.book()
    for place in range(10, 30):
        take(match, ballots, match.proposal(0, book, replace(match.task(book), second=place)))
    assert len(list(ballots.spoiled())) == DIFFERENT_MAX
    ballots.forget_before(1_000)
    assert list(ballots.spoiled()) == []


def test_votes_for_what_a_reorganisation_has_undone_make_no_certificate(match: HandMatch, ballots: Ballots) -> None:
    """Else a validator would hold a certificate that the contract refuses, and vote no more."""
    empty = match.book([])
    stale = replace(match.task(empty), snapshot_epoch=6)
    for task in (stale, match.task(empty)):
        assert take(match, ballots, match.proposal(0, empty, task)) == 0
        for number, key in enumerate(match.cast.vote_keys):
            ballots.take_vote(match.vote(number, task), signer=key.address.lower(), current=0)
        found = ballots.certificate()
        assert (found is not None) == (task is not stale)
