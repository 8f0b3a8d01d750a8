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


class MarketCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What validators signed and the chain accepted in the newest attempt, with a winner or with none eligible."""

    task_digest: str
    round: int
    bid_count: int
    signers: list[str]
    """Vote keys, ascending."""
    accepted_at: int


class MarketOrder(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    renter: str
    state: OrderStateName
    reason: str | None
    """Why it is unmatched: NO_BIDS, NONE_ELIGIBLE, NO_QUORUM or NONE_PLACEABLE."""
    attempt: int
    """Counts the auctions, from 0."""
    max_attempts: int
    created_at: int
    opened_at: int
    """The attempt."""
    next_attempt_at: int | None = None
    """When the network opens the next auction of an unmatched order; None if it does not."""
    expires_at: int
    gpu_units: int
    gpu_models: int
    """A mask: bit i is the GPU model with id i of the tables; 0 is any."""
    gpu_names: list[str]
    """What the mask allows, by name: a mask does not fit a double. Empty: any."""
    min_vram_gb: int
    max_hourly_usd: str
    duration_s: int
    commit_ms: int
    """How long a validator takes sealed bids, and then what they hide."""
    reveal_ms: int
    only: list[str]
    """Providers that may bid; empty: all."""
    deposit_usd: str
    """What is left of it, as of the last settlement."""
    charged_usd: str
    """What has been paid from it, as of the last settlement, over all providers that the lease had."""
    refunded_usd: str | None
    """What went back to the renter; None until the order has ended."""
    spec_hash: str
    policy_hash: str
    stake_version: int
    snapshot_epoch: int
    candidates: list[str]
    """Of the accepted certificate, the winner first."""
    certificate: MarketCertificate | None
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


class ValidatorVotes(msgspec.Struct, frozen=True, kw_only=True):
    """In the newest matches that this gateway has collected signed votes of, at most 100."""

    agreed: int = 0
    """Matches in which it voted for what the chain accepted."""
    differed: int = 0
    """It voted, and only for another result; that may be honest in a round that came to nothing."""
    missed: int = 0
    """No vote of it is known."""


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
    certificates: int
    """Accepted by the chain, of attempts in which it had weight."""
    votes: int
    """Those of them that carry its vote. A quorum is enough for a certificate, so a slow vote is missing as well."""
    last_vote_at: int | None
    """When the last certificate with its vote was accepted."""
    recent: ValidatorVotes


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
