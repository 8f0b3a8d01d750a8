"""Reason codes: the numbers of the protocol, without an overlap where two could meet."""

from __future__ import annotations

from itertools import chain

from sparewatt.protocol.contracts.reasons import (
    BidStatus,
    CloseReason,
    DeclineReason,
    HandOverReason,
    MessageRefusal,
    OrderOutcome,
    VoteRefusal,
)


def test_codes_of_bids_orders_and_votes_never_meet() -> None:
    kinds = (BidStatus, MessageRefusal, DeclineReason, OrderOutcome, VoteRefusal)
    codes = [int(code) for code in chain.from_iterable(kinds)]
    assert len(set(codes)) == len(codes)
    assert [(int(min(kind)), int(max(kind))) for kind in kinds] == [(0, 12), (32, 49), (64, 70), (96, 101), (128, 132)]


def test_codes_of_a_lease_never_meet() -> None:
    assert {int(code) for code in CloseReason} == {1, 2, 3, 4, 5}
    assert {int(code) for code in HandOverReason} == {16, 17, 18}


def test_codes_have_no_gap() -> None:
    for kind in (BidStatus, MessageRefusal, DeclineReason, OrderOutcome, VoteRefusal, CloseReason, HandOverReason):
        assert len(kind) == int(max(kind)) - int(min(kind)) + 1, kind


def test_the_codes_that_others_refuse_by_are_the_protocols() -> None:
    assert (MessageRefusal.UNBONDED, MessageRefusal.FAILED_BEFORE, MessageRefusal.TERMS) == (40, 47, 48)
    assert (OrderOutcome.NO_QUORUM, OrderOutcome.NONE_PLACEABLE) == (98, 99)
    assert (DeclineReason.TENANT, VoteRefusal.NOT_LEADER, CloseReason.EMPTY) == (66, 132, 4)
