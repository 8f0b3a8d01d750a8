"""Values of the ledger: amounts, prices, and jobs as they open, progress and close.

The job structs are also the records of the journal: they hold what is needed to settle a job after a crash, and never a
prompt, a key or an answer. None can be part of a reference cycle, so the garbage collector skips them (`gc=False`).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import Nano


class JobState(enum.Enum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Amount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Promo credits, which are free and spent first, and paid credits."""

    promo: Nano = Nano(0)
    paid: Nano = Nano(0)

    @property
    def total(self) -> Nano:
        return Nano(self.promo + self.paid)

    def take(self, nano: int) -> tuple[Amount, Amount]:
        """Split into `nano`, promo credits first, and the rest."""
        promo = min(nano, self.promo)
        taken = Amount(Nano(promo), Nano(min(nano - promo, self.paid)))
        return taken, self - taken

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
    """One node's part of an answer: the tokens that the gateway counted, and the price."""

    node_id: NodeId
    owner: AccountId
    price: TokenPrice
    prompt_tokens: int
    completion_tokens: int
    claimed_tokens: int
    """The node's own count. It is not paid by it."""
    outcome: str
    first_token_ms: float | None = None
    duration_ms: float = 0.0
    is_withheld: bool = False
    """Whether its owner gets the money only when the node passes a check."""


class OpenedJob(msgspec.Struct, frozen=True, tag="opened", gc=False):
    """A job that may be sent to a node from now on, with its hold."""

    id: MatchId
    account: AccountId
    key: KeyId
    model: ModelId
    opened_unix_s: float
    hold: Amount
    stream: bool = False


class ClosedJob(msgspec.Struct, frozen=True, tag="closed", gc=False):
    """A job that has ended, with all that is needed to settle it."""

    job: OpenedJob
    state: JobState
    closed_unix_s: float
    deliveries: tuple[Delivery, ...] = ()
    reason: str | None = None
    finish_reason: str | None = None
    """As the client received it."""


class DeliveryProgress(msgspec.Struct, frozen=True, tag="progress", gc=False):
    """What running jobs have delivered so far, in case they never close."""

    deliveries: dict[MatchId, tuple[Delivery, ...]]


JournalRecord: TypeAlias = OpenedJob | ClosedJob | DeliveryProgress


class RevenueSplit(msgspec.Struct, frozen=True, gc=False):
    """One delivery in nano-USD: its owner's net and the network's fee. Together they are what the payer pays."""

    net_promo: int
    net_paid: int
    fee_promo: int
    fee_paid: int


class Bill(msgspec.Struct, frozen=True, gc=False):
    """What a job costs its payer, and the split of each delivery."""

    cost: Amount
    splits: tuple[RevenueSplit, ...]
