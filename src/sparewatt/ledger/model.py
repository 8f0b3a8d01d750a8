"""What the books are made of: jobs as they open and close, and postings that sum to zero.

Structs here are also the records of the journal, so they hold what is needed to settle a job after a crash, and never a
prompt, a key or an answer. None can be part of a cycle, so the garbage collector need not look at them.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import Nano


class JobState(enum.Enum):
    """How a job ended. Every job ends in exactly one of these."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Amount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Money of both classes: free credits, which are spent first, and paid ones."""

    promo: Nano = Nano(0)
    paid: Nano = Nano(0)

    @property
    def total(self) -> Nano:
        return Nano(self.promo + self.paid)

    def take(self, nano: int) -> tuple[Amount, Amount]:
        """`nano` of it, free credits first, and the rest."""
        promo = min(nano, self.promo)
        taken = Amount(Nano(promo), Nano(min(nano - promo, self.paid)))
        return taken, Amount(Nano(self.promo - taken.promo), Nano(self.paid - taken.paid))

    def __add__(self, other: Amount) -> Amount:
        return Amount(Nano(self.promo + other.promo), Nano(self.paid + other.paid))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(Nano(self.promo - other.promo), Nano(self.paid - other.paid))


ZERO_AMOUNT = Amount()


class TokenPrice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Nano-USD per million tokens."""

    prompt: Nano
    completion: Nano


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node's part of an answer: what it was seen to deliver, and at which price."""

    node_id: NodeId
    owner: AccountId
    price: TokenPrice
    prompt_tokens: int
    completion_tokens: int
    claimed_tokens: int
    """What the node says it wrote; paid is what was seen."""
    outcome: str
    first_token_ms: float | None = None
    duration_ms: float = 0.0


class OpenedJob(msgspec.Struct, frozen=True, tag="opened", gc=False):
    """A job that may be sent to a node from now on, and what is held for it."""

    id: MatchId
    account: AccountId
    key: KeyId
    model: ModelId
    opened_unix_s: float
    hold: Amount
    stream: bool = False


class ClosedJob(msgspec.Struct, frozen=True, tag="closed", gc=False):
    """A job that is over, and all that is needed to settle it."""

    job: OpenedJob
    state: JobState
    closed_unix_s: float
    deliveries: tuple[Delivery, ...] = ()
    reason: str | None = None
    finish_reason: str | None = None
    """Why the answer ended, as its client was told."""


class DeliveryProgress(msgspec.Struct, frozen=True, tag="progress", gc=False):
    """What running jobs have delivered so far, for the case that they never close."""

    deliveries: dict[MatchId, tuple[Delivery, ...]]


JournalRecord: TypeAlias = OpenedJob | ClosedJob | DeliveryProgress


Posting: TypeAlias = tuple[str, int]
"""One line of the books: an account of the ledger, and what it gains (or loses)."""


class RevenueSplit(msgspec.Struct, frozen=True, gc=False):
    """What one delivery brings its owner (net), and the network (fee); together that is what its payer pays for it."""

    net_promo: int
    net_paid: int
    fee_promo: int
    fee_paid: int

    @property
    def gross(self) -> Amount:
        return Amount(Nano(self.net_promo + self.fee_promo), Nano(self.net_paid + self.fee_paid))


class Bill(msgspec.Struct, frozen=True, gc=False):
    """A job in money: what its payer pays, split by delivery."""

    cost: Amount
    splits: tuple[RevenueSplit, ...]
