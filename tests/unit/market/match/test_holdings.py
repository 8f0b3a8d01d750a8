"""What a validator holds: messages are taken as far as they prove themselves, and peers get what they lack."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.match import holdings as holdings_
from sparewatt.market.match.ballots import read_proposal
from sparewatt.market.match.holdings import MatchHoldings
from sparewatt.market.match.model import BidderStanding
from sparewatt.market.match.rounds import Rounds
from sparewatt.protocol.contracts.match import CommitList, RoundReached
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    MatchStatus,
    MissingBids,
    Proposal,
    SignedCommitList,
    SignedRevealList,
    list_digest,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.market.match.liars import commit_list, proposal_for, reveal_list, signed_vote
from tests.unit.market.match.match_scene import ORDER_ID, VOTE_KEYS, bid_for, commit_for, context_for, leader, signed_by

CONTEXT = context_for()
LEADER = leader(CONTEXT)
BIDS = [bid_for(number) for number in range(3)]
COMMITS = [commit_for(each) for each in BIDS]
LISTS = [commit_list(CONTEXT, number, COMMITS) for number in range(4)]
VOTERS = [str(key.address) for key in VOTE_KEYS]


def holding(*messages: MatchMessage) -> MatchHoldings:
    made = MatchHoldings(CONTEXT, standing=lambda _: BidderStanding.GOOD, rounds=Rounds(CONTEXT.weights, round_ms=300))
    made.commits.is_open = False
    for message in messages:
        assert made.take(message) == 0  # type: ignore[arg-type]
    return made


def status(*, round_: int = 0, task_hash: bytes = bytes(32), has: tuple[bytes, ...] = ()) -> MatchStatus:
    reached = RoundReached(ORDER_ID, 0, round_)
    return MatchStatus(reached, signed_by(VOTE_KEYS[3], reached), task_hash, has, ())


def test_a_reveal_list_brings_bids_and_lists_along() -> None:
    held = holding(reveal_list(CONTEXT, 3, BIDS, LISTS[:3]))
    assert held.commits.book.certified == {each.commit.bid_id for each in COMMITS}
    assert held.reveals.bid_count == 3
    assert len(held.reveals.admitted()) == 3


def test_an_answer_about_missing_bids_is_a_reveal_list() -> None:
    held = holding(MissingBids(0, reveal_list(CONTEXT, 3, BIDS, LISTS[:3])))
    assert len(held.reveals.admitted()) == 3


def test_forged_lists_that_are_carried_count_for_nothing() -> None:
    forged = [replace(signed, signature=LISTS[3].signature) for signed in LISTS[:3]]
    forged = [replace(signed, list=replace(signed.list, bid_ids=signed.list.bid_ids[:1])) for signed in forged]
    held = holding(reveal_list(CONTEXT, 3, BIDS, forged))
    assert held.commits.book.certified == set()
    assert held.reveals.bid_count == 0


def test_a_list_that_does_not_ascend_or_is_too_long_is_refused() -> None:
    held = holding()
    ids = LISTS[0].list.bid_ids
    for bid_ids in (ids[::-1], (ids[0], ids[0]), tuple(number.to_bytes(32, "big") for number in range(129))):
        body = CommitList(ORDER_ID, 0, bid_ids)
        signed = SignedCommitList(body, signed_by(VOTE_KEYS[0], body), ())
        assert held.take(signed) == MessageRefusal.OUT_OF_RANGE
    assert list(held.commits.book.lists()) == []


def test_a_proposal_brings_everything_that_is_needed_to_judge_it() -> None:
    told = replace(proposal_for(CONTEXT, LEADER, BIDS), commits=tuple(COMMITS), commit_lists=tuple(LISTS))
    held = holding(told)
    assert len(held.reveals.admitted()) == 3
    assert [each.task for each in held.ballots.proposed(0)] == [told.task]


def test_what_a_stranger_proposes_brings_nothing() -> None:
    told = replace(proposal_for(CONTEXT, LEADER, BIDS), commits=tuple(COMMITS), commit_lists=tuple(LISTS))
    held = holding()
    assert held.take(replace(told, vote=replace(told.vote, signature=bytes(65)))) == MessageRefusal.BAD_SIGNATURE
    assert list(held.commits.book.lists()) == []


def test_votes_and_statuses_tell_the_round() -> None:
    held = holding(signed_vote(CONTEXT, 1, task_hash=bytes(32), round_=3), status(round_=5))
    assert held.rounds.highest() == 3


# what is sent


def test_commits_travel_once_with_all_lists() -> None:
    held = holding(*LISTS)
    sent = list(held.commit_lists())
    assert [len(signed.commits) for signed in sent] == [3, 0, 0, 0]
    (alone, *_) = held.commits.book.lists()
    assert len(held.commit_list(alone[1]).commits) == 3


def test_a_list_counts_as_held_only_with_its_commits_and_bids() -> None:
    bare = replace(LISTS[0], commits=())
    held = holding(bare)
    assert held.complete_digests() == ((), ())
    held.take(LISTS[0])
    assert held.complete_digests() == ((list_digest(bare.list, signer=VOTERS[0]),), ())
    held = holding(*LISTS, replace(reveal_list(CONTEXT, 1, BIDS), bids=()))
    assert len(held.complete_digests()[0]) == 4
    assert held.complete_digests()[1] == ()
    held.take(reveal_list(CONTEXT, 1, BIDS))
    assert len(held.complete_digests()[1]) == 1


def test_a_peer_gets_the_lists_that_it_lacks() -> None:
    held = holding(*LISTS, reveal_list(CONTEXT, 1, BIDS))
    digests = held.complete_digests()
    everything = held.lacked_by(status(), certified=None)
    assert [message.tag for message in everything] == ["commit_list"] * 4 + ["reveal_list"]
    assert all(isinstance(each, SignedCommitList | SignedRevealList) for each in everything)
    rest = held.lacked_by(status(has=(*digests[0][1:], *digests[1])), certified=None)
    assert [message for message in rest if isinstance(message, SignedCommitList)] == rest
    assert len(rest) == 1


def test_an_answer_has_an_end(monkeypatch: object) -> None:
    held = holding(*LISTS)
    monkeypatch.setattr(holdings_, "REPLIES_MAX", 2)  # type: ignore[attr-defined]
    assert len(held.lacked_by(status(), certified=None)) == 2


def test_a_peer_gets_the_proposal_of_its_round_if_it_has_none() -> None:
    told = replace(proposal_for(CONTEXT, LEADER, BIDS), commits=tuple(COMMITS), commit_lists=tuple(LISTS))
    held = holding(told)
    has = held.complete_digests()[0]
    (given,) = held.lacked_by(status(has=has), certified=None)
    assert isinstance(given, Proposal)
    assert (given.task, set(given.bids)) == (told.task, set(told.bids))
    assert (len(given.commits), len(given.commit_lists)) == (3, 4)
    assert held.lacked_by(status(has=has, task_hash=struct_hash(told.task)), certified=None) == []
    assert held.lacked_by(status(has=has, round_=1), certified=None) == []


def test_a_peer_gets_a_certificates_votes_before_its_proposal() -> None:
    told = replace(proposal_for(CONTEXT, LEADER, BIDS), commits=tuple(COMMITS), commit_lists=tuple(LISTS))
    task_hash = struct_hash(told.task)
    held = holding(told, *[signed_vote(CONTEXT, number, task_hash=task_hash) for number in range(4)])
    proposed = read_proposal(told)
    given = held.lacked_by(status(has=held.complete_digests()[0], task_hash=task_hash), certified=proposed)
    assert [message.tag for message in given] == ["vote"] * 4 + ["proposal"]
    late = holding()
    for message in given:
        late.take(message)  # type: ignore[arg-type]
    assert late.ballots.certificate() is not None
