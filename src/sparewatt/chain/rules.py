"""What to do next with a transaction under way, and what it may cost. Pure: facts in, one step out.

Facts are what the chain shows (receipts, nonces, blocks); a node's error messages are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparewatt.chain.model import GasFees, TransactionReceipt
from sparewatt.core.limits import OUTBOX_VERSIONS_MAX
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.store.chain import OutboxRow, OutboxState

RAISE_AFTER_S = 60.0
"""A transaction that waits this long in a pool pays too little."""

LOST_BLOCKS_MIN = 2
"""Blocks that must agree before a nonce counts as taken by another."""


class OutboxAction(Enum):
    WAIT = "wait"
    SEND = "send"
    NOTE_SENT = "note_sent"
    NOTE_MINED = "note_mined"
    RAISE_FEE = "raise_fee"
    NOTE_LOST = "note_lost"
    SIGN_ANEW = "sign_anew"


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """As the chain stands. The sender's nonce is read before the receipt: a transaction that is mined in between is
    then seen as mined, never as lost.
    """

    sender_nonce: int
    head_number: int
    base_fee_wei: int
    receipt: TransactionReceipt | None
    is_known: bool
    """The newest signed form is in a block or in the node's pool."""


def next_outbox_action(row: OutboxRow, facts: TransactionStatus, *, depth: int) -> OutboxAction:
    """The one thing to do now for a row that is signed and not final."""
    if row.nonce is None or not row.signed:
        raise ValueError("a row under way has a nonce and a signed form")
    if facts.receipt is not None:
        return OutboxAction.WAIT if _is_noted(row, facts.receipt) else OutboxAction.NOTE_MINED
    if facts.sender_nonce > row.nonce:
        return _when_nonce_is_taken(row, facts, depth=depth)
    if _pays_too_little(row, facts) and len(row.signed) < OUTBOX_VERSIONS_MAX:
        return OutboxAction.RAISE_FEE
    if not facts.is_known:
        return OutboxAction.SEND
    return OutboxAction.WAIT if row.state is OutboxState.SENT and row.lost_block is None else OutboxAction.NOTE_SENT


def _is_noted(row: OutboxRow, receipt: TransactionReceipt) -> bool:
    return row.state is OutboxState.MINED and row.block_hash == receipt.block_hash and row.tx_hash == receipt.tx_hash


def _when_nonce_is_taken(row: OutboxRow, facts: TransactionStatus, *, depth: int) -> OutboxAction:
    """None of our forms can be mined any more, once that is as final as anything else."""
    if row.state is OutboxState.MINED:
        return OutboxAction.NOTE_SENT
    if row.lost_block is None or row.lost_block > facts.head_number:
        return OutboxAction.NOTE_LOST
    return (
        OutboxAction.SIGN_ANEW
        if facts.head_number - row.lost_block >= max(depth, LOST_BLOCKS_MIN)
        else OutboxAction.WAIT
    )


def _pays_too_little(row: OutboxRow, facts: TransactionStatus) -> bool:
    newest = row.signed[-1]
    return newest.max_wei < facts.base_fee_wei or (facts.is_known and newest.age_s > RAISE_AFTER_S)


def bumped_fees(last: SignedTransaction, now: GasFees) -> GasFees:
    """Fees of the next form: what the chain asks now, and an eighth more than before, or nodes keep the old one."""
    tip_wei = max(now.tip_wei, last.tip_wei * 9 // 8 + 1)
    return GasFees(max_wei=max(now.max_wei, last.max_wei * 9 // 8 + 1, tip_wei), tip_wei=tip_wei)
