"""Payouts, batches, leaves and claims as replies, from rows of the store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparewatt.core.ids import AccountId
from sparewatt.core.money import format_usd
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutLeafProof
from sparewatt.protocol.api.payouts import (
    Payout,
    PayoutBatch,
    PayoutBatchLeaves,
    PayoutClaim,
    PayoutClaimList,
    PayoutLeaf,
    PayoutProof,
)
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.payouts import AccountPayoutRow, PayoutBatchRow, PayoutLeafRow


def payout_of(row: AccountPayoutRow) -> Payout:
    return Payout(
        epoch=row.epoch,
        created_at=row.unix_s,
        address=row.address,
        amount_micro=row.added_micro,
        amount_usd=_usd(row.added_micro),
        earned_micro=row.earned_micro,
        earned_usd=_usd(row.earned_micro),
        state="ready" if row.posted_unix_s is None else "claimed" if row.claimed else "posted",
        posted_at=row.posted_unix_s,
    )


def batch_of(row: PayoutBatchRow) -> PayoutBatch:
    return PayoutBatch(
        epoch=row.epoch,
        created_at=row.unix_s,
        root="0x" + row.root.hex(),
        leaves=row.leaves,
        promised_micro=row.promised_micro,
        promised_usd=_usd(row.promised_micro),
        added_micro=row.added_micro,
        added_usd=_usd(row.added_micro),
        state="posted" if row.posted_unix_s is not None else "ready",
        posted_at=row.posted_unix_s,
        posted_tx=row.posted_tx,
    )


def batch_leaves_of(
    row: PayoutBatchRow, leaves: Sequence[PayoutLeafRow], *, following: str | None
) -> PayoutBatchLeaves:
    """`following`: the cursor of the next page of leaves."""
    batch = msgspec.structs.asdict(batch_of(row))
    return PayoutBatchLeaves(**batch, data=[_leaf_of(leaf) for leaf in leaves], next=following)


def proof_of(row: PayoutBatchRow, proof: PayoutLeafProof) -> PayoutProof:
    batch = msgspec.structs.asdict(batch_of(row))
    path = ["0x" + sibling.hex() for sibling in proof.path]
    return PayoutProof(**batch, leaf=_leaf_of(proof.leaf), index=proof.index, path=path)


def claim_list_of(
    account: AccountId, rows: Sequence[ChainRequestRow], *, claimed_micro: int, waiting_micro: int
) -> PayoutClaimList:
    return PayoutClaimList(
        data=[_claim_of(row) for row in rows],
        account=account,
        claimed_micro=claimed_micro,
        claimed_usd=_usd(claimed_micro),
        waiting_micro=waiting_micro,
        waiting_usd=_usd(waiting_micro),
    )


def _claim_of(row: ChainRequestRow) -> PayoutClaim:
    return PayoutClaim(
        address=row.address,
        epoch=row.epoch,
        amount_micro=row.micro,
        amount_usd=_usd(row.micro),
        state="claimed" if row.state is ChainRequestState.DONE else "failed",
        reason=row.reason,
        tx=row.tx,
    )


def _leaf_of(leaf: PayoutLeafRow) -> PayoutLeaf:
    return PayoutLeaf(address=leaf.address, earned_micro=leaf.earned_micro, spent_micro=leaf.spent_micro)


def _usd(micro: int) -> str:
    return format_usd(micro * NANO_PER_MICRO)
