"""What is a fault, without a chain. That the contracts punish each is tested in tests/evm/test_faults.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.faults import MarketFault, ProvenFault, find_faults, silence
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.market.rule import awards_of, book_of
from sparewatt.protocol.contracts.match import CertificateRecord
from sparewatt.protocol.contracts.match_messages import MatchMessage
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.by_hand import USD, HandMatch

PRICES = {0: 2 * USD, 1: USD, 2: 5 * USD // 2}


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of(PRICES)


def faults_of(match: HandMatch, *messages: MatchMessage, accepted: bool = False) -> tuple[ProvenFault, ...]:
    pool = EvidencePool(match.cast.context).add_all(messages)
    book = match.book()
    record = CertificateRecord(struct_hash(match.task(book)), 0, awards_of(match.cast.context.terms, book))
    indices = {vote_key: place for place, vote_key in enumerate(match.cast.context.weights)}
    return find_faults(pool, indices=indices, accepted=record if accepted else None)


def honest(match: HandMatch) -> list[MatchMessage]:
    book = match.book()
    return [
        *map(match.commit_list, range(4)),
        *map(match.reveal_list, range(4)),
        match.proposal(0, book),
        *(match.vote(i, match.task(book)) for i in range(4)),
    ]


def test_an_honest_match_has_no_fault(match: HandMatch) -> None:
    assert faults_of(match, *honest(match), accepted=True) == ()


def test_all_voters_of_a_false_task_are_named_by_round(match: HandMatch) -> None:
    book = match.book()
    task = replace(match.task(book), first=book.ranking[1], second=book.ranking[0])
    votes = [match.vote(1, task), match.vote(2, task, round_=3)]
    faults = faults_of(match, *honest(match), match.proposal(0, book, task), *votes)
    by_round = {each.arguments[1]: each.culprits for each in faults if each.fault is MarketFault.RANK}
    keys = [key.address.lower() for key in match.cast.vote_keys]
    assert by_round == {0: tuple(sorted(keys[:2])), 3: (keys[2],)}
    assert {each.culprits for each in faults if each.fault is MarketFault.DOUBLE_SIGN} == {(keys[0],), (keys[1],)}


def test_the_votes_of_a_proof_have_their_places_in_the_stake_history(match: HandMatch) -> None:
    book = match.book()
    task = replace(match.task(book), first=book.ranking[1], second=book.ranking[0])
    (fault,) = faults_of(match, match.proposal(2, book, task), match.vote(3, task))
    places = {vote_key: place for place, vote_key in enumerate(match.cast.context.weights)}
    shown = fault.arguments[2]
    assert [index for _, index in shown] == [places[culprit] for culprit in fault.culprits]


def test_a_vote_without_known_leaves_proves_nothing_by_itself(match: HandMatch) -> None:
    task = replace(match.task(match.book()), first=2)
    assert faults_of(match, *(match.vote(i, task) for i in range(4)), *map(match.reveal_list, range(4))) == ()


def test_a_task_of_another_policy_or_snapshot_is_not_judged_by_these_profiles(match: HandMatch) -> None:
    """A reorganisation may have shown the voter another snapshot: that makes no honest vote wrong."""
    book = match.book()
    bent = [replace(leaf, uptime_ppm=1) for leaf in book.leaves]
    other = book_of(match.cast.context.order_id, bent)
    for changes in ({"snapshot_root": b"\1" * 32}, {"policy_hash": b"\1" * 32}):
        task = replace(match.task(other), **changes)  # type: ignore[arg-type]
        assert faults_of(match, match.proposal(0, other, task)) == ()
    assert {each.fault for each in faults_of(match, match.proposal(0, other))} == {MarketFault.LEAF}


def test_an_omission_needs_the_voters_own_list_and_the_bid(match: HandMatch) -> None:
    book = match.book([0, 1])
    listed = match.reveal_list(1)
    vote, proposal = match.vote(1, match.task(book)), match.proposal(0, book)
    (fault,) = faults_of(match, listed, vote, proposal)
    assert (fault.fault, fault.culprits) == (MarketFault.OMISSION, (match.cast.vote_keys[1].address.lower(),))
    assert match.cast.providers[2].address in fault.why
    assert faults_of(match, replace(listed, bids=()), vote, proposal) == ()


def test_a_bidder_is_unrevealed_only_if_a_quorum_listed_it_and_a_task_was_accepted(match: HandMatch) -> None:
    others = HandMatch({**PRICES, 3: USD}, match.cast)
    lists = [others.commit_list(i) for i in range(3)]
    task = match.proposal(0, match.book())
    assert faults_of(match, *lists, task) == ()
    (fault,) = faults_of(match, *lists, task, accepted=True)
    assert (fault.fault, fault.culprits) == (MarketFault.UNREVEALED, (match.cast.providers[3].address,))
    signers = [each[1] for each in fault.arguments[5]]
    keys = sorted((key.address, i) for i, key in enumerate(match.cast.vote_keys[:3]))
    assert signers == [others.commit_list(i).signature for _, i in keys]
    assert faults_of(match, *lists[:2], task, accepted=True) == ()
    assert faults_of(match, *lists, accepted=True) == ()


def test_silence_names_the_signers_of_the_accepted_certificate_only(match: HandMatch) -> None:
    task = match.task(match.book())
    record = CertificateRecord(struct_hash(task), 0, awards_of(match.cast.context.terms, match.book()))
    pool = EvidencePool(match.cast.context).add_all([match.vote(0, task), match.vote(1, task, round_=1)])
    fault = silence(pool, task, record, indices=dict.fromkeys(match.cast.context.weights, 0))
    assert fault is not None
    assert fault.culprits == (match.cast.vote_keys[0].address.lower(),)
    nobody = EvidencePool(match.cast.context)
    assert silence(nobody, task, record, indices={}) is None
