"""What a validator serves counts only as far as others have signed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sparewatt.leasing.relay import evidence as evidence_module
from sparewatt.leasing.relay.evidence import EvidenceBook, MatchEvidence, table_of
from sparewatt.market.match.model import MatchNote
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.api.validators import RefusedBidder
from sparewatt.protocol.contracts.match_messages import write_object
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.reasons import BidStatus, MessageRefusal
from tests.unit.leasing.relay.auction import NODE_KEYS, PROFILES, PROVIDERS, STRANGER, VOTE_KEYS, Auction, profile

SERVED_BY = VOTE_KEYS[0].address


@pytest.fixture
def auction() -> Auction:
    return Auction()


@pytest.fixture
def book(auction: Auction) -> EvidenceBook:
    return auction.evidence_book()


def test_a_whole_match_is_taken_from_one_validator(auction: Auction, book: EvidenceBook) -> None:
    book.set_table(PROFILES)
    book.take(SERVED_BY, auction.progress())
    evidence = book.evidence
    assert evidence.words[SERVED_BY].problem is None
    assert {bid.provider: bid.price_uusd for bid in evidence.bids.values()} == auction.prices
    assert evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]
    assert evidence.declines == {PROVIDERS[2]: 64}
    assert len(evidence.lists) == 8
    assert {vote.validator for vote in evidence.votes} == {each.address for each in VOTE_KEYS}
    assert evidence.certificate is not None
    assert evidence.certificate.candidates[0] == (PROVIDERS[1], 1_500_000)
    assert evidence.certificate.signers == tuple(each.address for each in VOTE_KEYS)
    assert book.certificate == auction.certificate()
    assert (evidence.profiles, evidence.excluded) == (3, {"VRAM": 1})


def test_the_scores_are_recomputed_whenever_the_table_comes(auction: Auction, book: EvidenceBook) -> None:
    book.take(SERVED_BY, auction.progress())
    assert {bid.leaf for bid in book.evidence.bids.values()} == {None}
    assert book.evidence.ranking == []
    book.set_table(PROFILES)
    leaves = {bid.provider: bid.leaf for bid in book.evidence.bids.values()}
    for leaf in auction.book.leaves:
        assert leaves[leaf.provider] == (leaf.uptime_ppm, leaf.reputation_ppm, leaf.rtt_ms, leaf.status, leaf.score)


def test_the_same_again_changes_nothing_and_checks_no_signature(
    auction: Auction, book: EvidenceBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = auction.progress()
    book.take(SERVED_BY, progress)
    version = book.version
    monkeypatch.setattr(evidence_module, "recover_address", lambda *_: pytest.fail("checked again"))
    book.take(SERVED_BY, progress)
    assert book.version == version


def test_what_is_stored_is_read_again(auction: Auction, book: EvidenceBook) -> None:
    book.set_table(PROFILES)
    book.take(SERVED_BY, auction.progress())
    assert msgspec.json.decode(msgspec.json.encode(book.evidence), type=MatchEvidence) == book.evidence


def lies(auction: Auction) -> dict[str, dict[str, Any]]:
    """Each with what is served instead of the truth."""
    commit_list = auction.commit_list(STRANGER)
    other = Auction(prices=auction.prices, attempt=1)
    forged_commit = replace(auction.commit(PROVIDERS[0]), signature=auction.commit(PROVIDERS[1]).signature)
    with_forged = replace(auction.commit_list(VOTE_KEYS[0]), commits=(forged_commit,))
    dearer = replace(auction.revealed(PROVIDERS[0]), bid=replace(auction.bid(PROVIDERS[0]), price_uusd=9))
    swapped = replace(auction.reveal_list(VOTE_KEYS[0]), bids=(dearer,))
    few = auction.certificate(voters=2)
    doubled = replace(few, votes=(*few.votes, *few.votes))
    strange = replace(few, votes=(*few.votes, auction.vote(STRANGER)))
    moved = replace(auction.certificate(), task=replace(auction.task, stake_version=3))
    cheaper = replace(auction.certificate(), task=replace(auction.task, first=0, second=1))
    true = auction.certificate()
    other_winner = replace(true, leaves=(replace(true.leaves[0], provider=PROVIDERS[2]), *true.leaves[1:]))
    dearer_winner = replace(true, leaves=(replace(true.leaves[0], price_uusd=7), *true.leaves[1:]))
    no_winner = replace(true, leaves=(), paths=(), commits=())
    nothing: dict[str, Any] = {"commit_lists": [], "reveal_lists": [], "declines": [], "votes": [], "certificate": None}
    return {
        "a list of a stranger": {**nothing, "commit_lists": [write_object(commit_list)]},
        "a list of another attempt": {**nothing, "commit_lists": [write_object(other.commit_list(VOTE_KEYS[0]))]},
        "a bid that its provider did not sign": {**nothing, "commit_lists": [write_object(with_forged)]},
        "a price that was not committed": {**nothing, "reveal_lists": [write_object(swapped)]},
        "a decline by another": {
            **nothing,
            "declines": [write_object(auction.decline(PROVIDERS[0], signer=NODE_KEYS[PROVIDERS[1]]))],
        },
        "a decline with an invented code": {**nothing, "declines": [write_object(auction.decline(PROVIDERS[0], 99))]},
        "a vote of a stranger": {**nothing, "votes": [write_object(auction.vote(STRANGER))]},
        "too few votes": {**nothing, "certificate": write_object(few)},
        "the same votes twice": {**nothing, "certificate": write_object(doubled)},
        "a stranger's vote": {**nothing, "certificate": write_object(strange)},
        "votes for another task": {**nothing, "certificate": write_object(cheaper)},
        "another winner under true votes": {**nothing, "certificate": write_object(other_winner)},
        "another price under true votes": {**nothing, "certificate": write_object(dearer_winner)},
        "no winner under true votes": {**nothing, "certificate": write_object(no_winner)},
        "another stake version": {**nothing, "certificate": write_object(moved)},
        "no message at all": {**nothing, "votes": [{"vote": 7}]},
        "a certificate that is none": {**nothing, "certificate": {"task": "0x"}},
    }


LIES = lies(Auction())


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_puts_no_words_into_another_s_mouth(auction: Auction, book: EvidenceBook, lie: str) -> None:
    book.set_table(PROFILES)
    book.take(SERVED_BY, auction.progress(**LIES[lie]))
    evidence = book.evidence
    problem = evidence.words[SERVED_BY].problem or "none"
    assert "1 messages" in problem, "who served it is shown with it"
    assert (evidence.declines, evidence.votes, evidence.certificate, book.certificate) == ({}, [], None, None)
    assert all(bid.price_uusd is None for bid in evidence.bids.values())
    assert {entry.validator for entry in evidence.lists} <= {each.address for each in VOTE_KEYS}


def test_an_answer_for_another_match_is_taken_as_nothing(auction: Auction, book: EvidenceBook) -> None:
    book.take(SERVED_BY, auction.progress(attempt=4))
    assert book.evidence.bids == {}
    assert book.evidence.words[SERVED_BY].problem == "it answered for another match"


def test_a_bid_counts_as_certified_only_by_a_quorum_of_lists(auction: Auction, book: EvidenceBook) -> None:
    book.set_table(PROFILES)
    lists = [write_object(auction.commit_list(each)) for each in VOTE_KEYS]
    reveals = [write_object(auction.reveal_list(VOTE_KEYS[0]))]
    book.take(SERVED_BY, auction.progress(commit_lists=lists[:2], reveal_lists=reveals, certificate=None))
    assert book.evidence.ranking == []
    book.take(SERVED_BY, auction.progress(commit_lists=lists[:3], reveal_lists=reveals, certificate=None))
    assert book.evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]


def test_a_refusal_is_kept_under_the_name_of_who_said_it(auction: Auction, book: EvidenceBook) -> None:
    late = RefusedBidder(provider=PROVIDERS[0], code=int(MessageRefusal.LATE), late_by_ms=12)
    nonsense = [RefusedBidder(provider="<script>", code=32), RefusedBidder(provider=PROVIDERS[0], code=4_000)]
    book.take(SERVED_BY, auction.progress(refused=[late, *nonsense], round=-5))
    word = book.evidence.words[SERVED_BY]
    assert [(each.provider, each.code, each.late_by_ms) for each in word.refused] == [(PROVIDERS[0], 32, 12)]
    assert word.round == 0
    assert set(book.evidence.words) == {SERVED_BY}


def test_a_record_has_what_progress_leaves_out(auction: Auction, book: EvidenceBook) -> None:
    """Validators show lists without bids until everybody may know them."""
    bare = [write_object(replace(auction.commit_list(each), commits=())) for each in VOTE_KEYS]
    book.set_table(PROFILES)
    book.take(SERVED_BY, auction.progress(commit_lists=bare, reveal_lists=[]))
    assert book.evidence.bids == {}
    assert book.take_record(SERVED_BY, auction.record(VOTE_KEYS[0]))
    assert book.evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]
    assert book.evidence.words[SERVED_BY].problem is None


def test_a_record_tells_by_how_much_a_bid_was_late(auction: Auction, book: EvidenceBook) -> None:
    notes = (MatchNote(900, "refused", 32, PROVIDERS[2].upper().replace("X", "x"), 41), MatchNote(1, "closed"))
    book.take(SERVED_BY, auction.progress(refused=[RefusedBidder(provider=PROVIDERS[2], code=32)]))
    book.take_record(SERVED_BY, auction.record(VOTE_KEYS[0], notes=notes))
    book.take(SERVED_BY, auction.progress(version=9, refused=[RefusedBidder(provider=PROVIDERS[2], code=32)]))
    refused = book.evidence.words[SERVED_BY].refused
    assert [(each.provider, each.code, each.late_by_ms) for each in refused] == [(PROVIDERS[2], 32, 41)]


def forged_records(auction: Auction) -> dict[str, AuctionRecord]:
    honest = VOTE_KEYS[0]
    commit = auction.commit(PROVIDERS[0])
    stolen = replace(commit, commit=replace(commit.commit, provider=PROVIDERS[2]))
    cheaper = replace(auction.revealed(PROVIDERS[0]), bid=replace(auction.bid(PROVIDERS[0]), price_uusd=1))
    return {
        "of another attempt": Auction(attempt=1).record(honest),
        "of another validator": auction.record(VOTE_KEYS[1]),
        "with a bid under another's name": auction.record(honest, commits=(stolen,), reveals=()),
        "with another price": auction.record(honest, reveals=(cheaper,)),
        "with a stranger's vote": auction.record(honest, votes=(auction.vote(STRANGER),)),
        "with a stranger's list": auction.record(honest, commit_lists=(auction.commit_list(STRANGER),)),
        "with a signature that is none": auction.record(
            honest, votes=(replace(auction.vote(VOTE_KEYS[1]), signature=bytes(65)),)
        ),
    }


FORGED = forged_records(Auction())


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_record_is_told_apart_and_noted(book: EvidenceBook, forgery: str) -> None:
    assert not book.take_record(SERVED_BY, FORGED[forgery])
    evidence = book.evidence
    assert evidence.words[SERVED_BY].problem is not None
    assert all(bid.price_uusd in {None, 2_000_000, 1_500_000} for bid in evidence.bids.values())
    assert PROVIDERS[2] not in {bid.provider for bid in evidence.bids.values()}
    assert STRANGER.address not in {vote.validator for vote in evidence.votes}


def test_a_flood_is_bounded(auction: Auction, book: EvidenceBook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTS_MAX", "BIDS_MAX", "VOTES_MAX", "REFUSALS_MAX"):
        monkeypatch.setattr(evidence_module, name, 2)
    refused = [RefusedBidder(provider=PROVIDERS[0], code=32 + number) for number in range(10)]
    book.take(SERVED_BY, auction.progress(refused=refused, certificate=None))
    evidence = book.evidence
    assert (len(evidence.lists), len(evidence.votes), len(evidence.words[SERVED_BY].refused)) == (2, 2, 2)


def test_a_problem_keeps_what_was_said_before(auction: Auction, book: EvidenceBook) -> None:
    book.take(SERVED_BY, auction.progress())
    book.note_problem(SERVED_BY, "it cannot be reached")
    word = book.evidence.words[SERVED_BY]
    assert (word.heard, word.phase, word.problem) == (True, "certified", "it cannot be reached")


def test_a_bid_out_of_range_has_no_score(book: EvidenceBook) -> None:
    auction = Auction(prices={PROVIDERS[0]: 2_000_000})
    book.set_table([profile(PROVIDERS[0], zone=60)])
    book.take(SERVED_BY, auction.progress(certificate=None, votes=[], declines=[]))
    assert {bid.leaf for bid in book.evidence.bids.values()} == {None}


def test_a_rejected_bid_has_its_status(auction: Auction, book: EvidenceBook) -> None:
    book.set_table([profile(PROVIDERS[0], vram_gb=8), PROFILES[1]])
    book.take(SERVED_BY, auction.progress())
    statuses = {bid.provider: bid.leaf[3] for bid in book.evidence.bids.values() if bid.leaf is not None}
    assert statuses == {PROVIDERS[0]: BidStatus.VRAM, PROVIDERS[1]: BidStatus.ELIGIBLE}
    assert book.evidence.ranking == [PROVIDERS[1]]


def test_a_table_counts_if_it_hashes_to_the_chain_s_root() -> None:
    root, served = "0x" + snapshot_tree(PROFILES)[1].root.hex(), [write_message(each) for each in PROFILES]
    assert table_of(list(reversed(served)), root=root, count=3) == PROFILES
    assert table_of(served, root="0x" + "00" * 32, count=3) is None
    assert table_of(served[:2], root=root, count=3) is None
    assert table_of([{**served[0], "reputationPpm": 1}, *served[1:]], root=root, count=3) is None
    assert table_of([{"provider": 3}] * 3, root=root, count=3) is None
    assert table_of("nothing", root=root, count=3) is None
