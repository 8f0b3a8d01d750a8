from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.model import MatchNote
from sparewatt.market.match.replay import BidOutcome, Replay, replay
from sparewatt.market.rule import book_of
from sparewatt.protocol.contracts.match import BidLeaf
from sparewatt.protocol.contracts.reasons import DeclineReason, MessageRefusal
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.by_hand import USD, HandMatch

PRICES = {0: 2 * USD, 1: USD, 2: 5 * USD // 2, 3: 3 * USD, 4: 50 * USD}


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of(PRICES)


def outcomes(match: HandMatch, again: Replay) -> dict[int, BidOutcome]:
    numbers = {keys.address: number for number, keys in enumerate(match.cast.providers)}
    return {numbers[bid.provider]: bid.outcome for bid in again.bids}


def test_a_replay_gives_the_same_leaves_root_and_digest(match: HandMatch) -> None:
    book = match.book()
    again = replay(match.record())
    assert again.leaves == book.leaves
    assert again.bid_root == book.tree.root
    assert again.task == match.task(book)
    assert again.task_hash == struct_hash(match.task(book))
    assert (again.round, len(again.voters), again.differences) == (0, 3, ())
    assert replay(match.record(), accepted=match.task(book)) == again


def test_each_bid_has_its_outcome_and_score_terms(match: HandMatch) -> None:
    again = replay(match.record())
    expected = {
        1: BidOutcome.WON,
        0: BidOutcome.STANDBY,
        2: BidOutcome.STANDBY,
        3: BidOutcome.LOST,
        4: BidOutcome.REJECTED,
    }
    assert outcomes(match, again) == expected
    winner, loser, rejected = again.bids[0], again.bids[3], again.bids[4]
    assert again.winner == winner
    assert (winner.rank, winner.pay_uusd, winner.listed_ppm) == (0, USD, 10**6)
    assert winner.terms is not None
    assert loser.terms is not None
    assert loser.pay_uusd is None
    assert loser.terms.score - winner.terms.score == 2 * USD
    assert loser.reason == f"The score is {2 * USD} above the winner's: dearer."
    assert (rejected.rank, rejected.reason) == (None, "OVER_MAX_PRICE")


def test_a_tie_is_said_to_be_one() -> None:
    again = replay(HandMatch.of({0: USD, 1: USD}).record())
    assert again.bids[1].reason == "The same score as the winner's; the tie-break decided."


def test_a_loser_sees_in_which_terms_it_is_worse() -> None:
    match = HandMatch.of({0: USD, 1: USD}, latency_value=100)
    slow = match.cast.providers[1].address
    profiles = dict(match.cast.context.profiles)
    profiles[slow] = replace(profiles[slow], zone=9, uptime_ppm=900_000)
    match.cast = replace(match.cast, context=replace(match.cast.context, profiles=profiles))
    again = replay(match.record())
    assert again.bids[1].reason.endswith("farther away, less reliable.")
    assert again.differences == ("The record's profiles do not hash to the snapshot's root.",)


def test_bids_that_got_no_further_say_where_they_stopped() -> None:
    match = HandMatch.of({0: USD, 1: 2 * USD})
    uncertified, hidden, left_out = match.commit(2, USD), match.commit(3, USD), match.commit(4, USD)
    other = HandMatch({**match.prices, 3: USD, 4: USD}, match.cast)
    lists = [replace(other.commit_list(i), commits=()) for i in range(4)]
    some = HandMatch({2: USD}, match.cast).commit_list(0)
    again = replay(
        match.record(
            commits=(match.commit(0), match.commit(1), uncertified, hidden, left_out),
            commit_lists=(*lists, replace(some, commits=())),
            reveals=(match.bid(0), match.bid(1), match.bid(4, USD)),
            declines=(match.decline(5, DeclineReason.BUSY),),
        )
    )
    found = outcomes(match, again)
    assert found[2] is BidOutcome.UNCERTIFIED
    assert found[3] is BidOutcome.UNREVEALED
    assert found[4] is BidOutcome.LEFT_OUT
    assert found[5] is BidOutcome.DECLINED
    assert {bid.listed_ppm for bid in again.bids if bid.outcome is BidOutcome.UNCERTIFIED} == {250_000}
    assert again.differences == ()


def test_refusals_are_shown_with_who_refused_and_how_late(match: HandMatch) -> None:
    late, forged = match.cast.providers[5].address, match.cast.providers[6].address
    voter = match.cast.vote_keys[2].address.lower()
    again = replay(
        match.record(
            MatchNote(812, "commit", MessageRefusal.LATE, late, 12),
            MatchNote(813, "commit", MessageRefusal.LATE, late, 13),
            MatchNote(5, "commit", MessageRefusal.BAD_SIGNATURE, forged),
            MatchNote(6, "vote", MessageRefusal.BAD_SIGNATURE, voter),
            MatchNote(7, "closed", 0, late),
        ),
        replace(match.record(MatchNote(1, "commit", MessageRefusal.LATE, late, 99)), validator="0xother"),
    )
    refused = {bid.provider: bid for bid in again.bids if bid.outcome is BidOutcome.REFUSED}
    assert refused.keys() == {late, forged}
    assert [(each.validator, each.reason, each.late_by_ms) for each in refused[late].refusals] == [
        (match.cast.vote_keys[0].address.lower(), "LATE", 12),
        ("0xother", "LATE", 99),
    ]


def test_records_of_several_validators_fill_each_others_gaps(match: HandMatch) -> None:
    first = match.record(reveals=tuple(map(match.bid, (0, 1))), commit_lists=match.record().commit_lists[:2])
    second = match.record(reveals=tuple(map(match.bid, (2, 3, 4))), commit_lists=match.record().commit_lists[2:])
    assert replay(first).differences
    assert replay(first, second).differences == replay(second, first).differences == ()
    assert replay(first, second).task_hash == replay(match.record()).task_hash


def test_nothing_in_a_record_is_believed_but_what_is_signed(match: HandMatch) -> None:
    """A bid that nobody committed, a list of a stranger, a vote of a stranger: as if they were not there."""
    stranger = SigningKey(b"\x66" * 32)
    honest = match.record()
    commits = tuple(replace(each, signature=match.sign(stranger, each.list)) for each in honest.commit_lists)
    reveals = tuple(replace(each, signature=match.sign(stranger, each.list)) for each in honest.reveal_lists)
    votes = tuple(replace(each, signature=match.sign(stranger, each.vote)) for each in honest.votes)
    spoiled = match.record(commit_lists=commits, reveal_lists=reveals, votes=votes, proposals=())
    again = replay(spoiled)
    assert (again.round, again.voters, again.leaves) == (None, (), ())
    assert set(outcomes(match, again).values()) == {BidOutcome.UNCERTIFIED}


def test_a_bid_signed_by_another_key_is_named(match: HandMatch) -> None:
    forged = match.commit(1, key=SigningKey(b"\x66" * 32))
    again = replay(match.record(commits=(forged, *(match.commit(i) for i in (0, 2, 3, 4)))))
    provider = match.cast.providers[1].address
    assert again.differences == (f"The bid of {provider} is in the task, and its node key did not sign its commit.",)


def test_a_false_result_is_named_field_by_field(match: HandMatch) -> None:
    book = match.book()
    best, second, *_ = book.ranking
    task = replace(match.task(book), first=second, second=best)
    votes = tuple(match.vote(i, task) for i in range(3))
    again = replay(match.record(proposals=(match.proposal(0, book, task),), votes=votes))
    assert again.differences == (
        f"first is {best} here and {second} in the certified task.",
        f"second is {second} here and {best} in the certified task.",
    )
    assert again.task == match.task(book)
    assert outcomes(match, again)[1] is BidOutcome.WON


def test_a_false_leaf_is_named(match: HandMatch) -> None:
    def bend(leaf: BidLeaf) -> BidLeaf:
        return replace(leaf, score=1) if leaf.provider == match.cast.providers[3].address else leaf

    book = book_of(match.cast.context.order_id, map(bend, match.book().leaves))
    votes = tuple(match.vote(i, match.task(book)) for i in range(3))
    again = replay(match.record(proposals=(match.proposal(0, book),), votes=votes))
    assert f"score of {match.cast.providers[3].address} is {3 * USD} here and 1 certified." in again.differences
    assert any(each.startswith("bid_root") for each in again.differences)


def test_an_accepted_task_that_no_record_explains_is_named(match: HandMatch) -> None:
    accepted = replace(match.task(match.book()), bid_root=b"\x11" * 32)
    again = replay(match.record(), accepted=accepted)
    assert again.round is None
    assert again.differences[-1].startswith("No record has the leaves of the accepted task")
    assert any("0x" + "11" * 32 in each for each in again.differences)


def test_a_record_of_another_policy_or_order_is_named(match: HandMatch) -> None:
    honest = match.record()
    other = replace(honest.context, terms=replace(honest.context.terms, gpu_units=2))
    assert "The record's policy does not hash to the order's." in replay(replace(honest, context=other)).differences
    elsewhere = HandMatch(match.prices, replace(match.cast, context=replace(honest.context, attempt=9))).record()
    again = replay(honest, elsewhere)
    assert again.task == replay(honest).task
    assert len(again.differences) == 1
    assert "another context" in again.differences[0]


def test_keys_and_weights_that_a_record_brings_along_do_not_pass_for_the_chains(match: HandMatch) -> None:
    """The cheapest lie: a match of one's own keys, true in itself."""
    honest = match.cast.context
    own_keys = tuple(SigningKey(bytes([i + 1]) * 32) for i in range(4))
    made_up = replace(honest, weights={key.address.lower(): 1 for key in own_keys})
    forged = HandMatch({3: USD}, replace(match.cast, context=made_up, vote_keys=own_keys)).record()
    alone = replay(forged)
    assert (alone.differences, alone.is_by_chain, len(alone.voters)) == ((), False, 3)
    against = replay(forged, chain_context=honest)
    assert (against.round, against.voters, against.leaves, against.is_by_chain) == (None, (), (), True)
    assert any("another context" in each for each in against.differences)
    assert replay(match.record(), chain_context=honest).differences == ()


def test_no_bids_at_all_is_a_match_with_nobody() -> None:
    match = HandMatch.of({})
    again = replay(match.record())
    assert (again.leaves, again.bids, again.winner, again.differences) == ((), (), None, ())
    assert again.bid_root == bytes(32)
