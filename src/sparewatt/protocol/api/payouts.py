"""`/v1/payouts`: payout batches for the settlement contract, their leaves and proofs, and claims.

The chain has six decimals: `…_micro` is an integer of micro-dollars (1e-6 $), `…_usd` is the same amount as an exact
decimal string. Times are Unix seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Payout(msgspec.Struct, frozen=True, kw_only=True):
    """One batch from the point of view of one account."""

    epoch: int
    """The number of the batch."""
    created_at: float
    address: str
    amount_micro: int
    """What this batch added."""
    amount_usd: str
    earned_micro: int
    """What all batches up to this one come to, for this address."""
    earned_usd: str
    state: Literal["ready", "posted", "claimed"]
    """`ready`: the chain does not have it yet."""
    posted_at: float | None


class PayoutList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[Payout]
    next: str | None
    """`after` of the next page; None on the last page."""


class PayoutBatch(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    created_at: float
    root: str
    """Of the Merkle tree over its leaves, in hex with 0x."""
    leaves: int
    promised_micro: int
    """What all addresses have earned up to this batch."""
    promised_usd: str
    added_micro: int
    """What this batch added."""
    added_usd: str
    state: Literal["ready", "posted"]
    posted_at: float | None
    posted_tx: str | None


class PayoutBatchList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[PayoutBatch]
    next: str | None


class PayoutBatchCreation(msgspec.Struct, frozen=True, kw_only=True):
    made: bool
    """False if nothing was earned or spent since the last batch."""
    batch: PayoutBatch | None


class StruckDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """About a batch whose root the guardian made void."""

    action: Literal["post_again", "make_anew"]


class PayoutLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """What an address has earned and spent in all. It does not name the account: leaves are public."""

    address: str
    earned_micro: int
    spent_micro: int


class PayoutBatchLeaves(PayoutBatch, frozen=True, kw_only=True):
    """A batch with a page of its leaves, in the order of the tree."""

    data: list[PayoutLeaf]
    next: str | None


class PayoutProof(PayoutBatch, frozen=True, kw_only=True):
    """What an address shows to the settlement contract to be paid."""

    leaf: PayoutLeaf
    index: int
    """Of the leaf in the tree, from 0."""
    path: list[str]
    """The sibling hashes from the leaf to the root, in hex with 0x."""


class PayoutClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim on the chain that has ended."""

    address: str
    epoch: int | None
    """The batch that proves it."""
    amount_micro: int
    amount_usd: str
    state: Literal["claimed", "failed"]
    reason: str | None
    """Why it failed."""
    tx: str | None


class PayoutClaimList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[PayoutClaim]
    account: str
    claimed_micro: int
    """What the account has claimed in all."""
    claimed_usd: str
    waiting_micro: int
    """In batches that the chain does not have yet."""
    waiting_usd: str
