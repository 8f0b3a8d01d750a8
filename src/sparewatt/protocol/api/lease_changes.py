"""`/v1/leases/{lease}/…`: what a renter does with a lease that runs, what it costs, and what happened to it.

Amounts are dollars as exact decimal strings, times are Unix seconds of the chain.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Number = float | str
"""Text may be more exact."""
ActorName = Literal["renter", "provider", "validators", "network"]
DepositWarningName = Literal["deposit_low", "deposit_empty"]
HistoryKindName = Literal[
    "ordered",
    "auction_opened",
    "deposit_added",
    "matched",
    "unmatched",
    "candidate_skipped",
    "placed",
    "taken_over",
    "started",
    "deposit_low",
    "paused",
    "resumed",
    "update_proposed",
    "updated",
    "notice_given",
    "handed_over",
    "unplaced",
    "closed",
    "cancelled",
    "expired",
]


class LeaseMoney(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease costs, as of `as_of`."""

    as_of: int
    hourly_usd: str
    """Now: 0 while it does not run."""
    spent_usd: str
    """Up to now, also what no settlement has written down yet."""
    left_usd: str
    deposited_usd: str
    """All that you have put in."""
    compensated_usd: str
    """What providers' bonds have added to it."""
    runway_s: int | None
    """How long what is left lasts at the agreed price; None without a provider."""
    runs_until: int | None
    """While it runs: when it ends or is paused if nothing else happens."""
    limit: Literal["deposit", "duration"] | None
    """Which of the two that is."""
    paused_s: int
    """All its pauses together."""
    grace_ends_at: int | None
    """While it is paused: so long its provider is bound, and its data is kept."""
    warning: DepositWarningName | None
    """`deposit_low`: 80 % of the deposit, as it was last filled, is spent. `deposit_empty`: the lease is paused, and
    closed when the grace ends."""
    next_step: str | None
    """What to do about the warning."""


class LeaseEnding(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    """RENTER, DURATION, PROVIDER_RECLAIM, EMPTY, NO_PROVIDER, CANCELLED or EXPIRED."""
    who: ActorName
    why: str
    at: int | None
    paid_usd: str
    refunded_usd: str | None
    """None until the block that ended it is read whole."""
    compensation_usd: str


class LeaseEvent(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    kind: HistoryKindName
    who: ActorName
    text: str
    reason: str | None
    """A code's name: RENTER, EMPTY, DOWN, NO_BIDS, …"""
    provider: str | None
    hourly_usd: str | None
    duration_s: int | None
    amount_usd: str | None
    """What was added to the deposit."""
    paid_usd: str | None
    refunded_usd: str | None
    compensation_usd: str | None
    tx: str | None


class LeaseEventList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[LeaseEvent]
    """The oldest first."""


class LeaseTopUpBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    usd: Number
    max_spend: Number | None = None
    """Raises what this lease may cost at most."""
    id: str | None = None
    """The client's idempotency key."""


class LeaseExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    duration: str | int
    """How much longer: `90m`, `12h`, `7d`, or seconds."""
    max_spend: Number | None = None
    """Raises what this lease may cost at most."""
    dry_run: bool = False
    id: str | None = None
    """The client's idempotency key."""


class LeaseUpdateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hourly_usd: Number | None = None
    """Another price, up to the order's highest."""
    duration: str | int | None = None
    """How long it shall go on from now."""
    image: str | None = None
    """Another image: the container is replaced, and what was on its disk is gone."""
    command: list[str] | str | None = None
    """Likewise; empty for the image's own."""
    env: dict[str, str | float | bool] | list[str] = {}
    """Variables to set beside those that are there; likewise."""
    unset: list[str] = []
    """Names of variables to take away; likewise."""
    max_spend: Number | None = None
    """Raises what this lease may cost at most."""
    dry_run: bool = False
    id: str | None = None
    """The client's idempotency key."""


class LeaseScaleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    count: int
    """So many leases of this name shall there be."""
    max_spend: Number | None = None
    """What the new ones may cost together."""
    dry_run: bool = False
    """Only say which would end and what would be ordered."""
    id: str | None = None
    """The client's idempotency key."""


class LeaseChangePlan(msgspec.Struct, frozen=True, kw_only=True):
    hourly_usd: str
    duration_s: int
    """From now."""
    ends_at: int
    cost_usd: str
    """What it may cost from now on."""
    top_up_usd: str
    """What has to be added to the deposit for it."""


SealedText = Annotated[str, Meta(max_length=160 * 1024, pattern=r"^0x([0-9a-f]{2})+\Z")]
SecretName = Annotated[str, Meta(max_length=256)]


class LeaseSecretsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    attempt: int
    """Of the auction whose candidates they are sealed to."""
    sealed: Annotated[
        dict[Annotated[str, Meta(max_length=42)], Annotated[dict[SecretName, SealedText], Meta(max_length=64)]],
        Meta(max_length=3),
    ]
    """By candidate, then by name: bytes that only this candidate's node can open."""


class LeaseSecrets(msgspec.Struct, frozen=True, kw_only=True):
    names: list[str]
    missing: list[str]
    """Those that the provider that has the lease was not sent."""
    attempt: int
    candidates: list[str]
    """The winner first."""
    chain_id: int
    deployment_order: str
    """The contract that the order's id names: a client checks candidates and node keys on a chain of its own."""
