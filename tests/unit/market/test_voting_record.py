"""Votes of validators are counted from accepted certificates, and of the newest matches also from signed votes."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.chain_records import MarketState, VoteWeight, VotingRecord
from sparewatt.market.event_fold import apply_event
from sparewatt.market.voting_record import (
    CertificateVotes,
    CollectedVotes,
    RecentVotes,
    count_recent,
    count_votes,
    votes_between,
)
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import OPERATOR as ONE
from tests.unit.market.market_events import ORDER, OTHER_ORDER, accepted, in_blocks, lookup, no_match, weighed
from tests.unit.market.market_events import OTHER_OPERATOR as OTHER
from tests.unit.market.market_events import OTHER_VOTE_KEY as OTHER_KEY
from tests.unit.market.market_events import VOTE_KEY as ONE_KEY

KEYS = ["0x" + digit * 40 for digit in "1234"]
OPERATORS = ["0x" + digit * 40 for digit in "abcd"]
VOTERS = [VoteWeight(key, operator, 10, 0) for key, operator in zip(KEYS, OPERATORS, strict=True)]


def counted(*signers: list[str], voters: list[VoteWeight] = VOTERS) -> dict[str, VotingRecord]:
    records: dict[str, VotingRecord] = {}
    for number, keys in enumerate(signers):
        count_votes(records, CertificateVotes(voters, keys, accepted_at=1_000 + number))
    return records


def test_a_vote_in_the_certificate_counts_and_one_that_is_not_there_does_not() -> None:
    records = counted(KEYS[:3], KEYS[1:])
    assert [one.votes for one in records.values()] == [1, 2, 2, 1]
    assert {one.certificates for one in records.values()} == {2}


def test_the_last_vote_is_the_last_certificate_with_it() -> None:
    records = counted(KEYS[:3], KEYS[1:])
    assert [one.last_vote_at for one in records.values()] == [1_000, 1_001, 1_001, 1_001]
    assert counted([], [])[OPERATORS[0]] == VotingRecord(certificates=2)


def test_a_signer_without_weight_counts_for_nobody() -> None:
    stranger = "0x" + "9" * 40
    assert counted([stranger, KEYS[0]]).keys() == set(OPERATORS)
    assert counted([stranger, KEYS[0]]) == counted([KEYS[0]])


def test_who_had_no_weight_misses_nothing() -> None:
    records = counted(KEYS[:2], voters=VOTERS[:2])
    assert records.keys() == set(OPERATORS[:2])


def test_an_operator_keeps_its_count_when_it_changes_its_vote_key() -> None:
    records = counted(KEYS)
    renewed = VoteWeight("0x" + "8" * 40, OPERATORS[0], 10, 0)
    count_votes(records, CertificateVotes([renewed], [KEYS[0]], accepted_at=2_000))
    assert (records[OPERATORS[0]].votes, records[OPERATORS[0]].certificates) == (1, 2)
    count_votes(records, CertificateVotes([renewed], [renewed.vote_key], accepted_at=3_000))
    assert records[OPERATORS[0]] == VotingRecord(certificates=3, votes=2, last_vote_at=3_000)


def test_a_copy_of_the_state_is_counted_on_its_own() -> None:
    """A view is rolled back to its final state after a reorg: votes of blocks that are gone do not stay counted."""
    state = MarketState()
    count_votes(state.voting, CertificateVotes(VOTERS, KEYS, accepted_at=1))
    later = state.copy()
    count_votes(later.voting, CertificateVotes(VOTERS, KEYS, accepted_at=2))
    assert (state.voting[OPERATORS[0]].votes, later.voting[OPERATORS[0]].votes) == (1, 2)


# The newest matches

STAKE = (
    weighed(ONE_KEY, version=1, weight=9, total=9, operator=ONE),
    weighed(OTHER_KEY, version=2, weight=3, total=12, operator=OTHER),
)
STRANGE = "0x" + "ee" * 32


def market(*events: ChainEvent) -> MarketState:
    state = MarketState()
    for event in in_blocks([*STAKE, *events]):
        apply_event(state, event)
    return state


CERTIFIED_BY_ONE = market(lookup(), no_match())


def accepted_digest(state: MarketState, order_id: str = ORDER) -> str:
    certificate = state.orders[order_id].certificate
    assert certificate is not None
    return "0x" + certificate.record.task_hash.hex()


def test_a_vote_that_came_too_late_for_the_certificate_agrees_all_the_same() -> None:
    votes = [(OTHER_KEY, accepted_digest(CERTIFIED_BY_ONE))]
    counts = count_recent(CERTIFIED_BY_ONE, [CollectedVotes(ORDER, 0, votes)])
    assert counts == {ONE: RecentVotes(agreed=1), OTHER: RecentVotes(agreed=1)}


def test_a_vote_for_something_else_differs_and_none_is_missed() -> None:
    differed = count_recent(CERTIFIED_BY_ONE, [CollectedVotes(ORDER, 0, [(OTHER_KEY, STRANGE)])])
    assert differed == {ONE: RecentVotes(agreed=1), OTHER: RecentVotes(differed=1)}
    missed = count_recent(CERTIFIED_BY_ONE, [CollectedVotes(ORDER, 0, [])])
    assert missed == {ONE: RecentVotes(agreed=1), OTHER: RecentVotes(missed=1)}


def test_who_changed_its_mind_in_a_later_round_agrees() -> None:
    votes = [(OTHER_KEY, STRANGE), (OTHER_KEY, accepted_digest(CERTIFIED_BY_ONE))]
    assert count_recent(CERTIFIED_BY_ONE, [CollectedVotes(ORDER, 0, votes)])[OTHER] == RecentVotes(agreed=1)


def test_matches_are_added_up_and_votes_of_strangers_count_for_nobody() -> None:
    state = market(lookup(), accepted(), lookup(OTHER_ORDER), no_match(OTHER_ORDER))
    votes = [("0x" + "9" * 40, STRANGE)]
    counts = count_recent(state, [CollectedVotes(ORDER, 0, votes), CollectedVotes(OTHER_ORDER, 0, votes)])
    assert counts == {ONE: RecentVotes(agreed=2), OTHER: RecentVotes(agreed=1, missed=1)}


def test_an_attempt_that_the_chain_has_decided_nothing_of_is_left_out() -> None:
    undecided = [CollectedVotes(ORDER, 0, [(ONE_KEY, STRANGE)])]
    assert count_recent(market(lookup()), undecided) == {}
    assert count_recent(market(), undecided) == {}
    assert count_recent(CERTIFIED_BY_ONE, [CollectedVotes(ORDER, 1, [(ONE_KEY, STRANGE)])]) == {}
    forgotten = market(lookup(), no_match())
    forgotten.totals.clear()
    assert count_recent(forgotten, undecided) == {}


# In a span of time


def test_votes_due_and_given_are_those_of_certificates_in_the_span() -> None:
    state = market(lookup(), accepted(), lookup(OTHER_ORDER), no_match(OTHER_ORDER))
    times = sorted(order.certificate.accepted_at for order in state.orders.values() if order.certificate is not None)
    assert votes_between(state, [], since=times[0], until=times[1]) == {ONE: (1, 1), OTHER: (1, 1)}
    assert votes_between(state, [], since=times[1], until=times[1] + 1) == {ONE: (1, 1), OTHER: (0, 1)}
    assert votes_between(state, [], since=times[1] + 1, until=times[1] + 9) == {}


def test_a_vote_that_a_gateway_collected_was_given_in_time_and_another_one_was_not() -> None:
    state = CERTIFIED_BY_ONE
    late = CollectedVotes(ORDER, 0, [(OTHER_KEY, accepted_digest(state))])
    wrong = CollectedVotes(ORDER, 0, [(OTHER_KEY, STRANGE)])
    assert votes_between(state, [late], since=0, until=2**40)[OTHER] == (1, 1)
    assert votes_between(state, [wrong], since=0, until=2**40)[OTHER] == (0, 1)
    assert votes_between(state, [replace(late, attempt=1)], since=0, until=2**40)[OTHER] == (0, 1)
