"""The next action for a transaction of the outbox, the fee of its replacement, and which calls get a nonce next. Pure.

They decide by what the chain shows (receipts, nonces, blocks), never by a node's error messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sparewatt.evm.model import GasFees, TransactionReceipt
from sparewatt.store.chain import OutboxRow, OutboxState

RAISE_AFTER_S = 60.0
"""A transaction that waits this long in a pool pays too little."""
RAISE_AGAIN_S = 5.0
"""A replacement that the node has not taken after this time, while it keeps an older version, paid too little more."""
RAISE_NUM, RAISE_DEN = 9, 8
"""Nodes replace a pending transaction for 10 % more; an eighth is enough for all in use."""
VERSIONS_MAX = 20
"""How often a transaction is signed. The last version offers the highest fee that the operator allows."""
LOST_BLOCKS_MIN = 2
"""Blocks that must agree before a nonce counts as taken by another transaction."""
GAPS_MAX = 16
"""Nonces of one key that are filled in one step."""


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
    is_older_known: bool = False
    """The newest is not, but the version before it is: the node has not taken the replacement."""


def next_outbox_action(row: OutboxRow, status: TransactionStatus, *, depth: int, cap_wei: int) -> OutboxAction:
    """For a row that is signed and not final."""
    if row.nonce is None or not row.signed:
        raise ValueError("a row in flight has a nonce and a signed version")
    if status.receipt is not None:
        return OutboxAction.WAIT if _is_noted(row, status.receipt) else OutboxAction.NOTE_MINED
    if status.sender_nonce > row.nonce:
        return _when_nonce_is_taken(row, status, depth=depth)
    if _pays_too_little(row, status) and can_raise(row, cap_wei=cap_wei):
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


# fees


def _pays_too_little(row: OutboxRow, status: TransactionStatus) -> bool:
    newest = row.signed[-1]
    if newest.max_wei < status.base_fee_wei:
        return True
    return (status.is_known and newest.age_s > RAISE_AFTER_S) or (
        status.is_older_known and newest.age_s > RAISE_AGAIN_S
    )


def can_raise(row: OutboxRow, *, cap_wei: int) -> bool:
    """Whether a replacement may pay so much more that nodes take it."""
    return len(row.signed) < VERSIONS_MAX and _least_raise(row.signed[-1].max_wei) <= cap_wei


def bumped_fees(row: OutboxRow, now: GasFees, *, cap_wei: int) -> GasFees:
    """The fees of a replacement: those of today, and enough above the last version; no more than `cap_wei` per gas.

    The last version that may be signed offers the cap: after it only a lower base fee helps.
    """
    last = row.signed[-1]
    tip_wei = max(now.tip_wei, _least_raise(last.tip_wei))
    max_wei = max(now.max_wei, _least_raise(last.max_wei), tip_wei)
    max_wei = cap_wei if len(row.signed) >= VERSIONS_MAX - 1 else min(max_wei, cap_wei)
    return GasFees(max_wei=max_wei, tip_wei=min(tip_wei, max_wei))


def _least_raise(wei: int) -> int:
    return wei * RAISE_NUM // RAISE_DEN + 1


def first_fees(now: GasFees, *, base_fee_wei: int, cap_wei: int) -> GasFees | None:
    """The fees of a first version; None while the chain costs more than the operator allows."""
    if base_fee_wei > cap_wei:
        return None
    return GasFees(max_wei=min(now.max_wei, cap_wei), tip_wei=min(now.tip_wei, cap_wei))


# what is sent next


def waiting_s(rows: Sequence[OutboxRow]) -> float:
    """How long a sender's oldest transaction has waited for a block; 0 if none waits."""
    return max((row.signed[0].age_s for row in rows if is_unmined(row) and row.signed), default=0.0)


def is_unmined(row: OutboxRow) -> bool:
    return row.state in {OutboxState.SIGNED, OutboxState.SENT}


def may_decide_refusal(row: OutboxRow, in_flight: Sequence[OutboxRow]) -> bool:
    """Whether a revert of this call's estimate is the contract's answer: nothing under way can still change it.

    For a call of a request these are the calls before it in its request, for others all of the sender's.
    """
    return not any(is_unmined(each) and row.request_id in {None, each.request_id} for each in in_flight)


def missing_nonces(sender_nonce: int, in_flight: Sequence[OutboxRow]) -> list[int]:
    """Nonces that no row in flight has although rows with later ones wait: none of these can be mined."""
    taken = {row.nonce for row in in_flight}
    last = max((row.nonce for row in in_flight if row.nonce is not None and is_unmined(row)), default=sender_nonce)
    return [nonce for nonce in range(sender_nonce, last) if nonce not in taken][:GAPS_MAX]
