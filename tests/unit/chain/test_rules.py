"""The next action for a transaction of the outbox: one line per situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.chain.rules import (
    RAISE_AFTER_S,
    VERSIONS_MAX,
    OutboxAction,
    TransactionStatus,
    bumped_fees,
    next_outbox_action,
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
