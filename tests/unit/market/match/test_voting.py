"""What a leader proposes, and every reason not to vote for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.match.ballots import ProposedTask, read_proposal
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.match.reveal_phase import RevealPhase
from sparewatt.market.match.voting import own_proposal, refusal_of
from sparewatt.protocol.contracts.match import NO_LEAF, Task
from sparewatt.protocol.contracts.match_messages import RevealedBid
from sparewatt.protocol.contracts.reasons import VoteRefusal
from sparewatt.protocol.typed_message import struct_hash
from tests.order_terms import order_terms
from tests.unit.market.match.liars import book_for, proposal_for, swapped, task_for
from tests.unit.market.match.match_scene import bid_for, context_for
from tests.unit.market.match.test_reveal_phase import BIDS, CONTEXT, IDS, phases


def all_revealed() -> RevealPhase:
    _, reveals = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    for each in BIDS:
        assert reveals.take(each) == 0
    return reveals


def proposed(bids: list[RevealedBid], context: AuctionContext = CONTEXT, **changes: object) -> ProposedTask:
    found = read_proposal(proposal_for(context, 0, bids, **changes))  # type: ignore[arg-type]
    assert found is not None
    return found


def refusal(task: ProposedTask, *, reveals: RevealPhase | None = None, own: tuple[bytes, ...] = tuple(IDS)) -> int:
    return refusal_of(CONTEXT, task, reveals=reveals or all_revealed(), own_bid_ids=own)


def test_a_leader_proposes_every_admitted_bid() -> None:
    task, book = own_proposal(CONTEXT, all_revealed())
    assert task == task_for(CONTEXT, book_for(CONTEXT, BIDS))
    assert len(book.leaves) == task.bid_count == 3


def test_a_leader_without_bids_proposes_an_empty_tree() -> None:
    _, reveals = phases({})
    task, book = own_proposal(CONTEXT, reveals)
    assert (book.leaves, task.bid_count, task.bid_root, task.first) == ((), 0, bytes(32), NO_LEAF)


def test_the_right_task_is_voted_for() -> None:
    assert refusal(proposed(BIDS)) == 0
    assert refusal(proposed(list(reversed(BIDS)))) == 0


def test_an_empty_tree_is_voted_for_by_one_who_acknowledged_nothing() -> None:
    _, reveals = phases({})
    assert refusal(proposed([]), reveals=reveals, own=()) == 0
    assert refusal(proposed([]), reveals=reveals, own=(IDS[0],)) == VoteRefusal.MISSING_BID


def test_a_bid_that_only_the_leader_acknowledged_is_welcome() -> None:
    assert refusal(proposed(BIDS), own=(IDS[1],)) == 0


@pytest.mark.parametrize("missing", range(3))
def test_a_tree_without_an_own_bid_is_refused(missing: int) -> None:
    rest = [each for number, each in enumerate(BIDS) if number != missing]
    assert refusal(proposed(rest)) == VoteRefusal.MISSING_BID
    own = tuple(bid_id for number, bid_id in enumerate(IDS) if number != missing)
    assert refusal(proposed(rest), own=own) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"order_id": bytes(32)},
        {"attempt": 1},
        {"policy_hash": bytes(32)},
        {"snapshot_epoch": 2},
        {"snapshot_root": bytes(32)},
        {"stake_version": 4},
    ],
)
def test_another_context_is_refused(changes: dict[str, Any]) -> None:
    assert refusal(proposed(BIDS, change=lambda task: replace(task, **changes))) == VoteRefusal.WRONG_CONTEXT


def test_a_bid_that_is_not_certified_or_not_revealed_is_refused() -> None:
    _, uncertified = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [1, 2]})
    for each in BIDS:
        uncertified.take(each)
    assert refusal(proposed(BIDS), reveals=uncertified, own=()) == VoteRefusal.UNCERTIFIED_BID
    _, unrevealed = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    for each in BIDS[1:]:
        unrevealed.take(each)
    assert refusal(proposed(BIDS), reveals=unrevealed, own=()) == VoteRefusal.UNCERTIFIED_BID


def test_a_changed_bid_is_not_the_certified_one() -> None:
    assert refusal(proposed([bid_for(0, price=1), *BIDS[1:]])) == VoteRefusal.UNCERTIFIED_BID
    assert refusal(proposed([bid_for(0, salt="x"), *BIDS[1:]])) == VoteRefusal.UNCERTIFIED_BID


def no_third(task: Task) -> Task:
    return replace(task, third=NO_LEAF)


@pytest.mark.parametrize("change", [swapped, no_third])
def test_another_ranking_is_refused(change: object) -> None:
    assert refusal(proposed(BIDS, change=change)) == VoteRefusal.WRONG_RESULT


@pytest.mark.parametrize(
    "changes", [{"score": 1}, {"uptime_ppm": 1}, {"reputation_ppm": 10**6}, {"rtt_ms": 500}, {"status": 1, "score": 0}]
)
def test_a_false_field_of_a_leaf_is_refused(changes: dict[str, Any]) -> None:
    leaves = book_for(CONTEXT, BIDS).leaves
    false = (replace(leaves[0], **changes), *leaves[1:])
    assert refusal(proposed(BIDS, leaves=false)) == VoteRefusal.WRONG_RESULT


def test_the_payment_rule_of_another_order_changes_the_context() -> None:
    other = context_for(terms=order_terms(payment_rule=1))
    assert refusal(proposed(BIDS, other)) == VoteRefusal.WRONG_CONTEXT
    assert struct_hash(other.terms) != CONTEXT.policy_hash
