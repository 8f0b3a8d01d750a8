from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.protocol.contracts.match import RoundReached
from sparewatt.protocol.contracts.match_messages import MatchMessage, MatchStatus, MissingBids
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.by_hand import USD, HandMatch

STRANGER = SigningKey(b"\x66" * 32)


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of({0: 2 * USD, 1: USD})


@pytest.fixture
def pool(match: HandMatch) -> EvidencePool:
    return EvidencePool(match.cast.context)


def voter(match: HandMatch, number: int) -> str:
    return match.cast.vote_keys[number].address.lower()


def test_a_message_brings_everything_that_it_carries(match: HandMatch, pool: EvidencePool) -> None:
    whole = replace(match.reveal_list(1), commit_lists=(match.commit_list(2),))
    pool.add(MissingBids(0, whole))
    assert pool.reveal_lists.keys() == {voter(match, 1)}
    assert pool.commit_lists.keys() == {voter(match, 2)}
    assert len(pool.bids) == 2
    assert pool.commits.keys() == {match.cast.providers[0].address, match.cast.providers[1].address}


def test_a_proposal_brings_its_vote_and_its_task(match: HandMatch, pool: EvidencePool) -> None:
    book = match.book()
    proposal = replace(match.proposal(0, book), commit_lists=(match.commit_list(3),), bids=(match.bid(0),))
    pool.add(proposal)
    assert pool.votes.keys() == {(0, voter(match, 0))}
    assert pool.tasks[struct_hash(proposal.task)].leaves == book.leaves
    assert pool.commit_lists.keys() == {voter(match, 3)}
    assert len(pool.bids) == 1


def test_what_strangers_sign_is_left_out(match: HandMatch, pool: EvidencePool) -> None:
    commits, reveals, vote = match.commit_list(0), match.reveal_list(0), match.vote(0, match.task(match.book()))
    messages: list[MatchMessage] = [
        replace(commits, signature=match.sign(STRANGER, commits.list), commits=()),
        replace(reveals, signature=bytes(65), bids=()),
        replace(vote, signature=match.sign(STRANGER, vote.vote)),
        match.commit(0, key=STRANGER),
        replace(match.decline(0, 64), signature=match.sign(STRANGER, match.decline(0, 64).decline)),
        MatchStatus(RoundReached(match.cast.context.order_id, 0, 0), bytes(65), bytes(32), (), ()),
    ]
    pool.add_all(messages)
    assert pool == EvidencePool(match.cast.context)


def test_what_belongs_to_another_attempt_is_left_out(match: HandMatch, pool: EvidencePool) -> None:
    elsewhere = HandMatch(match.prices, replace(match.cast, context=replace(match.cast.context, attempt=9)))
    pool.add_all([elsewhere.commit_list(0), elsewhere.reveal_list(0), elsewhere.proposal(0, elsewhere.book())])
    pool.add_all([elsewhere.decline(0, 64), elsewhere.bid(0)])
    assert pool == EvidencePool(match.cast.context)


def test_a_key_without_weight_counts_for_nothing(match: HandMatch) -> None:
    weights = {**match.cast.context.weights, voter(match, 0): 0}
    pool = EvidencePool(replace(match.cast.context, weights=weights))
    pool.add_all([match.commit_list(0), match.commit_list(1)])
    assert pool.commit_lists.keys() == {voter(match, 1)}


def test_leaves_that_do_not_hash_to_the_root_are_left_out(match: HandMatch, pool: EvidencePool) -> None:
    book = match.book()
    task = match.task(book)
    pool.add_task(task, book.leaves[:1])
    pool.add_task(task, (book.leaves[0], replace(book.leaves[1], score=1)))
    pool.add_task(replace(task, bid_count=1), book.leaves)
    assert pool.tasks == {}
    pool.add_task(task, book.leaves)
    assert pool.tasks[struct_hash(task)].bid_ids().keys() == {
        match.commit(0).commit.bid_id,
        match.commit(1).commit.bid_id,
    }


def test_contradictory_messages_are_both_kept(match: HandMatch, pool: EvidencePool) -> None:
    pool.add_all([match.commit_list(0), match.commit_list(0, [1]), match.commit_list(0, [1])])
    pool.add_all([match.vote(0, match.task(match.book())), match.vote(0, match.task(match.book([0])))])
    assert len(pool.commit_lists[voter(match, 0)]) == 2
    assert len(pool.votes[0, voter(match, 0)]) == 2


def test_a_bid_is_certified_by_more_than_two_thirds_of_the_lists(match: HandMatch, pool: EvidencePool) -> None:
    bid_id = match.commit(1).commit.bid_id
    pool.add_all([match.commit_list(0), match.commit_list(0, [1]), match.commit_list(1), match.commit_list(2, [0])])
    assert not pool.is_certified(bid_id)
    pool.add(match.commit_list(2, [1]))
    assert pool.is_certified(bid_id)
    assert pool.listers(bid_id).keys() == {voter(match, i) for i in range(3)}


def test_a_task_is_certified_by_votes_in_one_round(match: HandMatch, pool: EvidencePool) -> None:
    task = match.task(match.book())
    pool.add_all([match.vote(0, task), match.vote(1, task), match.vote(2, task, round_=1)])
    assert pool.certified_tasks() == {}
    pool.add(match.vote(3, task))
    assert pool.certified_tasks().keys() == {(0, struct_hash(task))}
    assert pool.voters(struct_hash(task)).keys() == {0, 1}
