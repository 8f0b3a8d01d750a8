"""The next action for a transaction of the outbox, and the fee of its replacement. Pure functions.

They decide by what the chain shows (receipts, nonces, blocks), never by a node's error messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparewatt.evm.model import GasFees, TransactionReceipt
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.store.chain import OutboxRow, OutboxState

RAISE_AFTER_S = 60.0
"""A transaction that waits this long in a pool pays too little."""
VERSIONS_MAX = 20
"""How often a transaction is signed: each raise of its fee is an eighth, together more than tenfold."""
LOST_BLOCKS_MIN = 2
"""Blocks that must agree before a nonce counts as taken by another transaction."""


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
    """What the chain shows of one row.

    The sender's nonce is read before the receipt: a transaction that is mined in between is then seen as mined, never
    as lost.
    """

    sender_nonce: int
    head_number: int
    base_fee_wei: int
    receipt: TransactionReceipt | None
    is_known: bool
    """The newest signed version is in a block or in the node's pool."""


def next_outbox_action(row: OutboxRow, status: TransactionStatus, *, depth: int) -> OutboxAction:
    """For a row that is signed and not final."""
    if row.nonce is None or not row.signed:
        raise ValueError("a row in flight has a nonce and a signed version")
    if status.receipt is not None:
        return OutboxAction.WAIT if _is_noted(row, status.receipt) else OutboxAction.NOTE_MINED
    if status.sender_nonce > row.nonce:
        return _when_nonce_is_taken(row, status, depth=depth)
    if _pays_too_little(row, status) and len(row.signed) < VERSIONS_MAX:
        return OutboxAction.RAISE_FEE
    if not status.is_known:
        return OutboxAction.SEND
    return OutboxAction.WAIT if row.state is OutboxState.SENT and row.lost_block is None else OutboxAction.NOTE_SENT


def _is_noted(row: OutboxRow, receipt: TransactionReceipt) -> bool:
    return row.state is OutboxState.MINED and row.block_hash == receipt.block_hash and row.tx_hash == receipt.tx_hash


def _when_nonce_is_taken(row: OutboxRow, status: TransactionStatus, *, depth: int) -> OutboxAction:
    """No version of ours can be mined any more, once the block that took the nonce is final."""
    if row.state is OutboxState.MINED:
        return OutboxAction.NOTE_SENT
    if row.lost_block is None or row.lost_block > status.head_number:
        return OutboxAction.NOTE_LOST
    is_final = status.head_number - row.lost_block >= max(depth, LOST_BLOCKS_MIN)
    return OutboxAction.SIGN_ANEW if is_final else OutboxAction.WAIT


def _pays_too_little(row: OutboxRow, status: TransactionStatus) -> bool:
    newest = row.signed[-1]
    return newest.max_wei < status.base_fee_wei or (status.is_known and newest.age_s > RAISE_AFTER_S)


def bumped_fees(last: SignedTransaction, now: GasFees) -> GasFees:
    """The fees of a replacement: those of today, and an eighth above the last, or nodes keep the last version."""
    tip_wei = max(now.tip_wei, last.tip_wei * 9 // 8 + 1)
    return GasFees(max_wei=max(now.max_wei, last.max_wei * 9 // 8 + 1, tip_wei), tip_wei=tip_wei)
