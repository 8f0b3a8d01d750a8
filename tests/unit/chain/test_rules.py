"""The next action for a transaction of the outbox: one line per situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.chain.rules import (
    GAPS_MAX,
    RAISE_AFTER_S,
    RAISE_AGAIN_S,
    VERSIONS_MAX,
    OutboxAction,
    TransactionStatus,
    bumped_fees,
    can_raise,
    first_fees,
    may_decide_refusal,
    missing_nonces,
    next_outbox_action,
    waiting_s,
)
from sparewatt.evm.model import GasFees, TransactionReceipt
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.store.chain import OutboxRow, OutboxState

HASH, BLOCK, OTHER_BLOCK = bytes(32), b"\x01" * 32, b"\x02" * 32
VERSION = SignedTransaction(HASH, b"raw", max_wei=100, tip_wei=10, age_s=1.0)
ROW = OutboxRow(
    id=1,
    business_id="payout:1",
    sender="0x" + "a" * 40,
    recipient="0x" + "b" * 40,
    data=b"",
    gas_limit=None,
    state=OutboxState.SENT,
    nonce=5,
    tries=0,
    reason=None,
    block_number=None,
    block_hash=None,
    tx_hash=None,
    succeeded=None,
    lost_block=None,
    signed=(VERSION,),
)
MINED = replace(ROW, state=OutboxState.MINED, block_number=9, block_hash=BLOCK, tx_hash=HASH)
LOST = replace(ROW, lost_block=10)
RECEIPT = TransactionReceipt(HASH, 9, BLOCK, succeeded=True, gas_used=1)
WAITING = TransactionStatus(sender_nonce=5, head_number=10, base_fee_wei=50, receipt=None, is_known=True)
CAP = 10**12
TAKEN = replace(WAITING, sender_nonce=6, is_known=False)

SITUATIONS = [
    ("waits in a pool", ROW, WAITING, OutboxAction.WAIT),
    ("taken by a node before we noted it", replace(ROW, state=OutboxState.SIGNED), WAITING, OutboxAction.NOTE_SENT),
    ("signed, never sent", replace(ROW, state=OutboxState.SIGNED), replace(WAITING, is_known=False), OutboxAction.SEND),
    ("dropped from the pool", ROW, replace(WAITING, is_known=False), OutboxAction.SEND),
    ("now in a block", ROW, replace(WAITING, receipt=RECEIPT), OutboxAction.NOTE_MINED),
    ("still in that block", MINED, replace(WAITING, receipt=RECEIPT), OutboxAction.WAIT),
    (
        "now in another block",
        MINED,
        replace(WAITING, receipt=replace(RECEIPT, block_hash=OTHER_BLOCK)),
        OutboxAction.NOTE_MINED,
    ),
    ("its block is gone, it waits again", MINED, WAITING, OutboxAction.NOTE_SENT),
    ("its block is gone and so is it", MINED, replace(WAITING, is_known=False), OutboxAction.SEND),
    ("mined although its nonce is used", ROW, replace(TAKEN, receipt=RECEIPT), OutboxAction.NOTE_MINED),
    ("another has its nonce", ROW, TAKEN, OutboxAction.NOTE_LOST),
    ("another has its nonce, not for long", LOST, replace(TAKEN, head_number=11), OutboxAction.WAIT),
    ("another has its nonce for good", LOST, replace(TAKEN, head_number=13), OutboxAction.SIGN_ANEW),
    ("another had its nonce, the chain went back", LOST, replace(TAKEN, head_number=8), OutboxAction.NOTE_LOST),
    ("its nonce is free again", LOST, WAITING, OutboxAction.NOTE_SENT),
    ("the base fee is above what it pays", ROW, replace(WAITING, base_fee_wei=101), OutboxAction.RAISE_FEE),
    (
        "it waits too long",
        replace(ROW, signed=(replace(VERSION, age_s=RAISE_AFTER_S + 1),)),
        WAITING,
        OutboxAction.RAISE_FEE,
    ),
    (
        "the node kept an older version and refused the replacement",
        replace(ROW, signed=(VERSION, replace(VERSION, age_s=RAISE_AGAIN_S + 1))),
        replace(WAITING, is_known=False, is_older_known=True),
        OutboxAction.RAISE_FEE,
    ),
    (
        "the node may still take the replacement",
        replace(ROW, signed=(VERSION, replace(VERSION, age_s=RAISE_AGAIN_S - 1))),
        replace(WAITING, is_known=False, is_older_known=True),
        OutboxAction.SEND,
    ),
    (
        "it pays the most that is allowed, and that is too little",
        replace(ROW, signed=(replace(VERSION, max_wei=CAP),)),
        replace(WAITING, base_fee_wei=2 * CAP),
        OutboxAction.WAIT,
    ),
    (
        "what it may pay more is too little for a replacement",
        replace(ROW, signed=(replace(VERSION, max_wei=CAP - 1),)),
        replace(WAITING, base_fee_wei=2 * CAP),
        OutboxAction.WAIT,
    ),
    (
        "its fee was raised often enough",
        replace(ROW, signed=(VERSION,) * VERSIONS_MAX),
        replace(WAITING, base_fee_wei=101),
        OutboxAction.WAIT,
    ),
]


@pytest.mark.parametrize(("row", "status", "action"), [each[1:] for each in SITUATIONS], ids=[s[0] for s in SITUATIONS])
def test_the_next_action(row: OutboxRow, status: TransactionStatus, action: OutboxAction) -> None:
    assert next_outbox_action(row, status, depth=3, cap_wei=CAP) is action


def test_a_row_that_was_never_signed_is_not_in_flight() -> None:
    with pytest.raises(ValueError, match="nonce"):
        next_outbox_action(replace(ROW, nonce=None), WAITING, depth=3, cap_wei=CAP)


@pytest.mark.parametrize("now", [GasFees(0, 0), GasFees(50, 1), GasFees(10_000, 3)])
def test_a_raised_fee_is_enough_to_replace_the_last(now: GasFees) -> None:
    fees = bumped_fees(ROW, now, cap_wei=CAP)
    assert fees.max_wei >= max(now.max_wei, VERSION.max_wei * 110 // 100)
    assert fees.tip_wei >= max(now.tip_wei, VERSION.tip_wei * 110 // 100)
    assert fees.max_wei >= fees.tip_wei


def test_a_fee_of_nothing_can_be_raised_too() -> None:
    free = replace(VERSION, max_wei=0, tip_wei=0)
    assert bumped_fees(replace(ROW, signed=(free,)), GasFees(0, 0), cap_wei=CAP) == GasFees(1, 1)


@pytest.mark.parametrize("now", [GasFees(10 * CAP, 1), GasFees(10 * CAP, 10 * CAP), GasFees(1, 10 * CAP)])
def test_no_raise_goes_above_the_cap(now: GasFees) -> None:
    fees = bumped_fees(ROW, now, cap_wei=CAP)
    assert fees.tip_wei <= fees.max_wei <= CAP


def test_the_last_version_offers_the_cap_and_each_before_it_enough_to_be_taken() -> None:
    """However slowly the chain's own fees rise, the last offer is the most that the operator allows."""
    row, fees = ROW, list[int]()
    while can_raise(row, cap_wei=CAP):
        raised = bumped_fees(row, GasFees(1, 1), cap_wei=CAP)
        last = row.signed[-1]
        assert raised.max_wei * 100 >= last.max_wei * 110
        assert raised.tip_wei * 100 >= last.tip_wei * 110
        fees.append(raised.max_wei)
        row = replace(row, signed=(*row.signed, replace(VERSION, max_wei=raised.max_wei, tip_wei=raised.tip_wei)))
    assert len(row.signed) == VERSIONS_MAX
    assert (fees[-1], fees[-2] < CAP) == (CAP, True)


def test_nothing_new_is_signed_while_the_base_fee_is_above_the_cap() -> None:
    assert first_fees(GasFees(3, 1), base_fee_wei=CAP + 1, cap_wei=CAP) is None
    assert first_fees(GasFees(3 * CAP, 2 * CAP), base_fee_wei=CAP, cap_wei=CAP) == GasFees(CAP, CAP)
    assert first_fees(GasFees(3, 1), base_fee_wei=1, cap_wei=CAP) == GasFees(3, 1)


def in_flight(nonce: int, *, state: OutboxState = OutboxState.SENT, request_id: str | None = None) -> OutboxRow:
    return replace(ROW, nonce=nonce, state=state, request_id=request_id)


@pytest.mark.parametrize(
    ("sender_nonce", "nonces", "missing"),
    [(5, [5, 6, 7], []), (3, [5, 6], [3, 4]), (5, [5, 8], [6, 7]), (9, [5, 6], []), (5, [], []), (0, [99], [*range(16)])],
    ids=["none", "before the first", "between two", "all are mined", "nothing in flight", "no more than a few at once"],
)
def test_missing_nonces(sender_nonce: int, nonces: list[int], missing: list[int]) -> None:
    assert missing_nonces(sender_nonce, [in_flight(nonce) for nonce in nonces]) == missing
    assert len(missing) <= GAPS_MAX


def test_a_nonce_before_mined_transactions_is_not_missing() -> None:
    """A node behind the chain tells an old count: what is mined needs nothing before it."""
    assert missing_nonces(3, [in_flight(5, state=OutboxState.MINED)]) == []


def test_a_sender_waits_as_long_as_its_oldest_transaction_without_a_block() -> None:
    raised = replace(ROW, signed=(replace(VERSION, age_s=70.0), replace(VERSION, age_s=5.0)))
    mined = replace(MINED, signed=(replace(VERSION, age_s=500.0),))
    assert waiting_s([ROW, raised, mined]) == 70.0
    assert waiting_s([mined]) == waiting_s([]) == 0.0


@pytest.mark.parametrize(
    ("request_id", "rows", "decides"),
    [
        ("a", [], True),
        ("a", [in_flight(1, request_id="b")], True),
        ("a", [in_flight(1, request_id="a")], False),
        ("a", [in_flight(1, request_id="a", state=OutboxState.MINED)], True),
        (None, [in_flight(1, request_id="b")], False),
        (None, [in_flight(1, state=OutboxState.SIGNED)], False),
        (None, [in_flight(1, state=OutboxState.MINED)], True),
    ],
    ids=["alone", "another's", "its own", "its own, mined", "any, without request", "signed", "mined"],
)
def test_a_revert_counts_once_nothing_under_way_can_change_it(
    request_id: str | None, rows: list[OutboxRow], *, decides: bool
) -> None:
    assert may_decide_refusal(replace(ROW, request_id=request_id), rows) is decides
