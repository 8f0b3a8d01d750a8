from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.leasing.relay.evidence import EvidenceBook, MatchEvidence
from sparewatt.leasing.relay.match_reply import match_reply
from sparewatt.market.chain_records import MarketState
from sparewatt.market.rule import SECOND_SCORE, awards_of
from sparewatt.protocol.api.lease_match import LeaseMatch
from sparewatt.protocol.api.validators import RefusedBidder
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match_messages import write_object
from sparewatt.protocol.typed_message import struct_hash
from tests.order_terms import order_terms
from tests.unit.leasing.relay.auction import OPENED_AT, OPERATORS, PROFILES, PROVIDERS, VOTE_KEYS, Auction, profile
from tests.unit.market.market_events import accepted, an_event, created

AUCTION = Auction()
ID = AUCTION.id_text
SERVED_BY = VOTE_KEYS[0].address
UNMATCHED = an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=97)
REPLY: dict[str, Any] = {"attempt": 0, "attempts": [0], "version": 5, "has_record": True, "attempt_s": 60}
NOTHING: dict[str, Any] = {"commit_lists": [], "reveal_lists": [], "declines": [], "votes": [], "certificate": None}


def collected(*, table: Any = PROFILES, **changes: Any) -> EvidenceBook:
    book = AUCTION.evidence_book()
    if table is not None:
        book.set_table(table)
    for vote_key in VOTE_KEYS:
        book.take(vote_key.address, AUCTION.progress(**changes))
    return book


def accepted_by_chain() -> list[ChainEvent]:
    """The certificate that was collected."""
    task = AUCTION.task
    event = accepted(ID, providers=(PROVIDERS[1], PROVIDERS[0]))
    args = dict(event.args)
    args["task"] = [f"0x{value.hex()}" if isinstance(value, bytes) else value for value in task.values()]
    args["signers"] = [each.address for each in VOTE_KEYS]
    return [an_event("task_manager.MatchAccepted", **args), created(ID, provider=PROVIDERS[1])]


def shown(
    state: MarketState, evidence: MatchEvidence | None, *, unix_s: float = OPENED_AT, **changes: Any
) -> LeaseMatch:
    return match_reply(state, state.orders[ID], evidence, unix_s=unix_s, **{**REPLY, **changes})


def test_a_match_is_shown_with_bids_scores_votes_and_certificate() -> None:
    reply = shown(AUCTION.state(*accepted_by_chain()), collected().evidence)
    assert msgspec.json.decode(msgspec.json.encode(reply), type=LeaseMatch) == reply
    assert reply.phase.name == "matched"
    assert [(bid.provider, bid.state, bid.rank, bid.price_usd) for bid in reply.bids] == [
        (PROVIDERS[1], "won", 1, "1.5"),
        (PROVIDERS[0], "standby", 2, "2"),
    ]
    score, leaf = reply.bids[0].score, next(e for e in AUCTION.book.leaves if e.provider == PROVIDERS[1])
    assert score is not None
    assert (score.score, score.price_uusd, score.rtt_ms) == (str(leaf.score), 1_500_000, leaf.rtt_ms)
    assert (score.price_uusd + score.latency_uusd) * 10**6 // score.p_ok_ppm == leaf.score
    assert len(reply.bids[0].committed_at) == len(reply.bids[0].revealed_at) == 4
    assert [vote.agrees for vote in reply.votes] == [True] * 4
    assert reply.certificate is not None
    assert reply.certificate.task_digest == "0x" + struct_hash(AUCTION.task).hex()
    assert (reply.certificate.pay_usd, len(reply.certificate.signers)) == ("2", 4)
    assert reply.certificate.candidates[0].price_usd == "1.5", "what it bid; by the payment rule it is paid more"
    assert [each.reason for each in reply.declines] == ["BUSY"]
    assert (reply.why, reply.relaxations) == (None, [])
    assert (reply.counts.bids, reply.counts.certified, reply.counts.revealed, reply.counts.eligible) == (2, 2, 2, 2)
    assert reply.counts.by_reason == {"BUSY": 1, "VRAM": 1}


def test_the_voters_are_those_of_the_attempt_with_the_rounds_that_they_lead() -> None:
    reply = shown(AUCTION.state(), collected(round=5, certificate=None, phase="vote").evidence)
    assert [voter.vote_key for voter in reply.voters] == [each.address for each in VOTE_KEYS]
    assert sorted(number for voter in reply.voters for number in voter.leads) == list(range(6))
    assert {voter.operator for voter in reply.voters} == set(OPERATORS)
    assert all(voter.heard for voter in reply.voters)
    assert reply.phase.round == 5


@pytest.mark.parametrize(
    ("phase", "unix_s", "left_ms"),
    [
        ("commit", OPENED_AT + 0.3, 500),
        ("commit", OPENED_AT + 5, 0),
        ("reveal", OPENED_AT + 1.0, 200),
        ("vote", OPENED_AT + 10, 50_000),
    ],
)
def test_an_open_attempt_shows_its_phase_and_the_time_left(phase: str, unix_s: float, left_ms: int) -> None:
    reply = shown(AUCTION.state(), collected(phase=phase, certificate=None).evidence, unix_s=unix_s)
    assert reply.phase.name == phase
    assert reply.phase.ends_in_ms is not None
    assert abs(reply.phase.ends_in_ms - left_ms) <= 1


def test_one_validator_alone_does_not_move_the_phase() -> None:
    book = AUCTION.evidence_book()
    book.take(SERVED_BY, AUCTION.progress(**NOTHING, phase="vote"))
    assert shown(AUCTION.state(), book.evidence).phase.name == "commit"
    book.take(VOTE_KEYS[1].address, AUCTION.progress(**NOTHING, phase="reveal"))
    assert shown(AUCTION.state(), book.evidence).phase.name == "reveal"


def test_a_certificate_that_the_chain_has_not_taken_is_only_certified() -> None:
    reply = shown(AUCTION.state(), collected().evidence)
    assert (reply.phase.name, reply.bids[0].state) == ("certified", "eligible")
    assert reply.certificate is not None
    assert (reply.certificate.tx, reply.certificate.accepted_at) == (None, None)


def test_what_the_winner_is_paid_is_known_before_the_chain_has_the_certificate() -> None:
    auction = Auction(terms=order_terms(min_vram_gb=16, payment_rule=SECOND_SCORE))
    book = auction.evidence_book()
    book.take(SERVED_BY, auction.progress())
    state = auction.state()
    certificate = match_reply(
        state, state.orders[auction.id_text], book.evidence, **REPLY, unix_s=OPENED_AT
    ).certificate
    assert certificate is not None
    awards = [award.price_uusd / 10**6 for award in awards_of(auction.terms, auction.book)[:2]]
    assert [float(each.pay_usd) for each in certificate.candidates] == awards
    assert awards[0] > 1.5, "more than it asked: the price with which it would still have won"


def test_a_certificate_that_an_earlier_release_stored_is_shown_with_prices_only() -> None:
    evidence = collected().evidence
    assert evidence.certificate is not None
    evidence.certificate = msgspec.structs.replace(evidence.certificate, pays=())
    certificate = shown(AUCTION.state(), evidence).certificate
    assert certificate is not None
    assert certificate.pay_usd == "1.5"


def test_an_earlier_attempt_keeps_its_winner() -> None:
    evidence = collected().evidence
    evidence.tx = "0x" + "5a" * 32
    reply = shown(AUCTION.state(*accepted_by_chain(), AUCTION.lookup_event(attempt=1)), evidence)
    assert (reply.phase.name, reply.order.attempt) == ("matched", 1)
    assert [bid.state for bid in reply.bids] == ["won", "standby"]


def test_sealed_bids_are_shown_without_a_price() -> None:
    reply = shown(AUCTION.state(), collected(phase="commit", reveal_lists=[], certificate=None).evidence)
    assert {(bid.state, bid.price_usd, bid.score) for bid in reply.bids} == {("certified", None, None)}


def test_a_bid_that_was_not_revealed_or_not_certified_has_that_reason() -> None:
    unrevealed = shown(AUCTION.state(), collected(phase="vote", reveal_lists=[], certificate=None).evidence)
    assert {(bid.state, bid.reason) for bid in unrevealed.bids} == {("unrevealed", "UNREVEALED")}
    few = [write_object(AUCTION.commit_list(each)) for each in VOTE_KEYS[:2]]
    late = collected(phase="vote", commit_lists=few, reveal_lists=[], certificate=None).evidence
    assert {(bid.state, bid.reason) for bid in shown(AUCTION.state(), late).bids} == {("uncertified", "UNCERTIFIED")}


def test_a_refusal_is_a_bid_s_end_only_if_more_than_a_third_says_so() -> None:
    book = AUCTION.evidence_book()
    refused = [RefusedBidder(provider=PROVIDERS[0], code=40)]
    book.take(SERVED_BY, AUCTION.progress(**NOTHING, refused=refused))
    one = shown(AUCTION.state(), book.evidence)
    assert one.bids == [], "one validator may lie"
    assert [(each.validator, each.reason) for each in one.refusals] == [(SERVED_BY, "UNBONDED")]
    book.take(VOTE_KEYS[1].address, AUCTION.progress(**NOTHING, refused=refused))
    two = shown(AUCTION.state(), book.evidence)
    assert [(bid.state, bid.reason, bid.bid_id) for bid in two.bids] == [("refused", "UNBONDED", None)]
    assert two.counts.bids == 0


def test_a_bid_that_came_too_late_is_late_and_not_what_followed_from_it() -> None:
    book = AUCTION.evidence_book()
    for vote_key in VOTE_KEYS:
        refused = [RefusedBidder(provider=PROVIDERS[0], code=code) for code in (32, 43)]
        book.take(vote_key.address, AUCTION.progress(**NOTHING, refused=refused))
    reply = shown(AUCTION.state(UNMATCHED), book.evidence)
    assert [bid.reason for bid in reply.bids] == ["LATE"]
    assert reply.counts.by_reason == {"LATE": 1}


def test_zero_bids_are_explained_by_what_kept_providers_out() -> None:
    table = [profile(provider, vram_gb=8) for provider in PROVIDERS]
    reply = shown(AUCTION.state(UNMATCHED), collected(table=table, **NOTHING).evidence)
    assert (reply.phase.name, reply.order.reason) == ("unmatched", "NONE_ELIGIBLE")
    assert reply.why == "0 bids because 3 providers have too little GPU memory."
    assert [(each.field, each.value, each.providers) for each in reply.relaxations] == [("vram_gb", "8", 3)]


def test_providers_that_were_not_asked_for_want_of_a_bond_are_counted() -> None:
    book = collected(**NOTHING)
    book.evidence.bondless = 2
    reply = shown(AUCTION.state(UNMATCHED), book.evidence)
    assert reply.counts.by_reason["NO_BOND"] == 2
    assert "2 providers have less free bond than an hour of the highest price" in (reply.why or "")


def test_zero_bids_because_nobody_answered() -> None:
    book = AUCTION.evidence_book()
    for vote_key in VOTE_KEYS:
        book.note_problem(vote_key.address, "it cannot be reached")
    gone = an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=98)
    assert shown(AUCTION.state(gone), book.evidence).why == (
        "0 bids because none of 4 validators answered this gateway."
    )


def test_too_few_validators_are_named_instead_of_bids_that_nobody_listed() -> None:
    lists = AUCTION.progress().commit_lists
    for count, says_so in ((2, True), (3, False)):
        book = AUCTION.evidence_book()
        changes: dict[str, Any] = {"reveal_lists": [], "votes": [], "certificate": None, "declines": []}
        book.take(SERVED_BY, AUCTION.progress(commit_lists=lists[:count], **changes))
        gone = an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=98)
        why = shown(AUCTION.state(gone), book.evidence).why or ""
        assert why.startswith("No quorum: 2 of 4 validators took part") is says_so


def test_without_anything_collected_the_chain_s_claims_explain() -> None:
    reply = shown(AUCTION.state(UNMATCHED), None)
    assert reply.why == "0 bids because 1 provider has too little GPU memory."
    assert [(each.field, each.value) for each in reply.relaxations] == [("vram_gb", "8")]
    assert (reply.bids, reply.votes, reply.certificate) == ([], [], None)


def test_bids_that_were_all_too_dear_name_the_price_that_would_do() -> None:
    auction = Auction(prices={PROVIDERS[0]: 4_000_000, PROVIDERS[1]: 5_000_000})
    book = auction.evidence_book()
    book.set_table(PROFILES)
    book.take(SERVED_BY, auction.progress(certificate=None, declines=[]))
    reply = shown(AUCTION.state(UNMATCHED), book.evidence)
    assert {(bid.state, bid.reason) for bid in reply.bids} == {("rejected", "OVER_MAX_PRICE")}
    assert reply.why == (
        "2 bids, none eligible: 2 bids asked more than the highest price, 1 provider has too little GPU memory."
    )
    assert (reply.relaxations[0].field, reply.relaxations[0].value) == ("max_hourly", "4")


def test_an_earlier_attempt_is_shown_by_what_was_collected_of_it() -> None:
    state = AUCTION.state(UNMATCHED, AUCTION.lookup_event(attempt=1))
    reply = shown(state, collected(certificate=None).evidence)
    assert (reply.attempt, reply.order.attempt, reply.phase.name) == (0, 1, "unmatched")
    assert reply.attempts == [0]


def test_an_ended_order_says_whether_its_deposit_has_left_the_escrow() -> None:
    cancelled = an_event("deployment_order.OrderCancelled", order_id=ID)
    refund = an_event("escrow.Refunded", lease_id=ID, payer=PROVIDERS[0], amount=1)
    assert not shown(AUCTION.state(), None).order.refunded
    assert shown(AUCTION.state(cancelled, refund), None).order.refunded
    assert shown(AUCTION.state(cancelled, refund), None).phase.name == "over"
