"""Secrets are sealed to certified candidates only; each lie of a gateway is a change of a true record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.secret_recipients import ProvenMatch, UnprovenCandidates, recipients_of
from sparewatt.protocol.contracts.match import CertificateRecord
from tests.unit.leasing.relay.auction import NODE_KEYS, PROVIDERS, STRANGER, VOTE_KEYS, Auction, signed

AUCTION = Auction()
RANKED = [PROVIDERS[1], PROVIDERS[0]]


def proven(*records: AuctionRecord, candidates: list[str] | None = None) -> ProvenMatch:
    return recipients_of(
        records, order_id=AUCTION.order_id, attempt=0, candidates=RANKED if candidates is None else candidates
    )


def test_the_key_of_each_candidate_is_the_one_that_signed_its_bid() -> None:
    found = proven(*(AUCTION.record(key) for key in VOTE_KEYS))
    assert [each.provider for each in found.recipients] == RANKED
    assert [each.public_key for each in found.recipients] == [NODE_KEYS[each].public_key for each in RANKED]
    assert [each.node_key for each in found.recipients] == [NODE_KEYS[each].address for each in RANKED]


def test_a_candidate_that_nobody_certified_gets_nothing() -> None:
    with pytest.raises(UnprovenCandidates, match="other candidates"):
        proven(AUCTION.record(VOTE_KEYS[0]), candidates=[PROVIDERS[2], *RANKED])
    with pytest.raises(UnprovenCandidates, match="other candidates"):
        proven(AUCTION.record(VOTE_KEYS[0]), candidates=RANKED[:1])


def with_false_key(record: AuctionRecord) -> AuctionRecord:
    """Another key in a candidate's place, with a bid that this key has signed."""
    context = replace(record.context, node_keys={**record.context.node_keys, RANKED[0]: STRANGER.address})
    commits = tuple(
        replace(each, signature=signed(STRANGER, each.commit)) if each.commit.provider == RANKED[0] else each
        for each in record.commits
    )
    return replace(record, context=context, commits=commits)


def test_one_record_with_another_key_is_enough_to_refuse() -> None:
    true, false = AUCTION.record(VOTE_KEYS[0]), with_false_key(AUCTION.record(VOTE_KEYS[1]))
    with pytest.raises(UnprovenCandidates):
        proven(true, false)
    with pytest.raises(UnprovenCandidates):
        proven(false, true)


def test_a_record_without_a_quorum_of_votes_proves_nothing() -> None:
    with pytest.raises(UnprovenCandidates):
        proven(AUCTION.record(VOTE_KEYS[0], votes=()))
    with pytest.raises(UnprovenCandidates, match="no validator"):
        proven()


def test_the_chains_record_is_that_of_this_match_and_no_other() -> None:
    found = proven(AUCTION.record(VOTE_KEYS[0]))
    accepted = CertificateRecord(found.task_hash, 1, found.awards)
    assert found.is_recorded_as(accepted.record_hash())
    assert not found.is_recorded_as(replace(accepted, task_hash=b"\1" * 32).record_hash())
