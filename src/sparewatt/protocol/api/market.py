"""`/v1/market`: what orders on chain are made of, and the orders, leases, providers and validators on this network's.

The tables are the same for everybody and every network. The rest is read from the chain's events as soon as a block has
them; `final` says whether they are deep enough to move money. Ids and addresses are lower-case hex, times Unix seconds,
amounts dollars as exact decimal strings.
"""

from __future__ import annotations

from typing import Literal

import msgspec

OrderStateName = Literal["open", "matched", "unmatched", "closed", "expired"]
LeaseStateName = Literal["pending", "active", "paused", "unplaced", "closed", "vacant"]
RegistryStatusName = Literal["registered", "active", "maintenance", "suspended", "left"]


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str


class ZoneEntry(TableEntry, frozen=True, kw_only=True):
    distances_ms: list[int]
    """To each zone in the order of their ids: a typical round trip in milliseconds. The first is to an unknown zone."""


class GpuModelEntry(TableEntry, frozen=True, kw_only=True):
    gpu_class: int = msgspec.field(name="class")
    """The id of its class; 0 if it has none."""


class CompliancePair(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    standard: str
    auditor: str


class MarketTables(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that masks and claims on chain consist of. An id never changes its meaning; 0 is none or unknown."""

    countries: list[TableEntry]
    zones: list[ZoneEntry]
    gpu_models: list[GpuModelEntry]
    gpu_classes: list[TableEntry]
    """Weakest first: a class is at least another if its id is."""
    tiers: list[TableEntry]
    compliance: list[CompliancePair]


class MarketLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease has the id of its order."""

    id: str
    renter: str
    state: LeaseStateName
    provider: str | None
    """None while no provider has it."""
    term: int
    """Counts the providers that it had."""
    position: int
    """Of the provider among the candidates: 0 is the winner, others are stand-ins."""
    hourly_usd: str
    deposit_usd: str
    """What is left of it, as of the last settlement."""
    locked_usd: str
    """The part of the provider's bond that answers for this lease."""
    created_at: int
    confirm_by: int
    """When the provider must have confirmed the start; of a vacant lease, when the stand-ins' time is over."""
    running_since: int | None
    ends_at: int | None
    """While it runs."""
    paused_at: int | None
    may_close_at: int | None
    """When the provider's notice is over."""
    hand_over_reason: str | None
    """Why the last provider lost it: NO_START, DOWN or RESIGNED."""
    closed_at: int | None
    close_reason: str | None
    """RENTER, DURATION, PROVIDER_RECLAIM, EMPTY or NO_PROVIDER."""
    final: bool


class MarketOrder(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    renter: str
    state: OrderStateName
    reason: str | None
    """Why it is unmatched: NONE_ELIGIBLE, NO_QUORUM or NONE_PLACEABLE."""
    attempt: int
    """Counts the auctions, from 0."""
    max_attempts: int
    created_at: int
    opened_at: int
    """The attempt."""
    expires_at: int
    gpu_units: int
    gpu_models: int
    """A mask: bit i is the GPU model with id i of the tables; 0 is any."""
    min_vram_gb: int
    max_hourly_usd: str
    duration_s: int
    only: list[str]
    """Providers that may bid; empty: all."""
    deposit_usd: str
    spec_hash: str
    policy_hash: str
    stake_version: int
    snapshot_epoch: int
    candidates: list[str]
    """Of the accepted certificate, the winner first."""
    failed: list[str]
    """Providers that may not bid again in this order."""
    lease: MarketLease | None
    final: bool


class MarketHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far the gateway has read the chain."""

    latest_block: int
    final_block: int


class MarketOrderList(MarketHead, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[MarketOrder]
    next: str | None = None
    """The `after` of the next page; None on the last one."""


class MarketLeaseList(MarketHead, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[MarketLease]
    next: str | None = None


class MarketProvider(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    node_key: str | None
    status: RegistryStatusName
    registered_at: int
    country: int
    """This and the next six are the provider's own claims, by the ids of the tables."""
    zone: int
    tier: int
    gpu_model: int
    vram_gb: int
    """Of each GPU, as claimed; 0 if it is not known."""
    gpu_units: int
    price_hint_usd: str
    attested: int
    """How many attestations it has, expired ones included."""
    free_usd: str
    """Of its bond."""
    locked_usd: str
    unbonding_usd: str
    final: bool


class MarketProviderList(MarketHead, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[MarketProvider]
    next: str | None = None


class MarketValidator(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The operator's address."""
    vote_key: str
    url: str
    """Where it takes bids."""
    weight_usd: str
    """At the newest stake version. 0: it does not vote."""
    stake_usd: str
    pending_usd: str
    """Came in, and does not weigh yet."""
    unbonding_usd: str
    slashed_usd: str
    jailed: bool


class MarketSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The table of providers that validators agreed on last."""

    epoch: int
    root: str
    count: int
    posted_at: int


class MarketValidatorList(MarketHead, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    stake_version: int
    total_usd: str
    """All weight at this version. A quorum is more than two thirds of it."""
    snapshot: MarketSnapshot | None
    data: list[MarketValidator]
