"""`/v1/leases`: what a renter orders, what it would cost, and what became of it.

An order on chain gets its id from the contract, so each lease here has an `id` of its own from the start, and an
`order_id` as soon as a block has it: the id of its order, its lease and its match. Amounts are dollars as exact decimal
strings, prices are per hour for the whole lease and all-in, times are Unix seconds.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sparewatt.protocol.api.lease_changes import LeaseChangePlan, LeaseEnding, LeaseMoney
from sparewatt.protocol.api.lease_uptime import LeaseUptime
from sparewatt.protocol.api.market import MarketOrder
from sparewatt.protocol.api.nodes import PolicyFilterStep

LeasePhase = Literal["sending", "failed", "open", "matched", "unmatched", "closed", "expired"]
"""`sending`: not on the chain yet. `failed`: it never got there, nothing was charged. The others are the order's."""
EgressName = Literal["public", "none"]
ProgramPhaseName = Literal[
    "waiting", "pulling", "starting", "running", "paused", "restarting", "exited", "failed", "stopped"
]
Number = float | str
"""Text may be more exact: `"1.073741824"`."""


class LeaseResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    gpus: int | None = None
    """Whole GPUs: 1 unless the policy's `gpu_count` says otherwise. 0 is a machine without one."""
    cpus: Number | None = None
    """Processors, in thousandths at the finest."""
    memory_gb: Number | None = None


class LeaseOrderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What is ordered: the fields of an order file. `docs/reference/leases.md` describes each."""

    image: str
    command: list[str] | str = ""
    """Arguments, or one line that is split as a shell would."""
    env: dict[str, str | float | bool] | list[str] = {}
    """By name, or a list of `NAME=value`. Every bidder can read it: what is secret belongs into `secrets`."""
    secrets: list[str] = []
    """Names only: the values never pass through the gateway or the chain."""
    ports: list[int] = []
    disk_gb: Number | None = None
    resources: LeaseResources | None = None
    duration: str | int = ""
    """`90m`, `12h`, `7d`, or seconds."""
    count: int = 1
    """So many leases of this kind, under one name."""
    near: str | None = None
    """As the policy's field."""
    policy: dict[str, Any] | str = ""
    """The vocabulary of policies, as far as an order on chain can hold it."""
    max_spend: Number | None = None
    """Dollars for all leases of this order together: no more is ever charged."""
    egress: EgressName = "public"
    gateway: bool = False
    """Let the program open a node's link to this network's gateway, through the agent of its machine."""
    name: str | None = None
    """How you call it. Made from the image if missing."""


class LeaseBody(LeaseOrderBody, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    id: str | None = None
    """The client's idempotency key: a request that repeats the id of an earlier one changes nothing."""


class LeaseActBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str | None = None
    """The client's idempotency key."""


class CloudPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a cloud publishes for the same card, for comparison."""

    gpu: str
    cloud: str
    instance: str
    """What is sold at this price; the price is of one GPU in it."""
    hourly_usd: str
    as_of: str
    """The day of the page; of one without a date, that and when it was read."""
    source: str


class StandingOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that could serve the order, as far as the gateway can tell. All of it is the provider's own word
    but what `measured` names."""

    provider: str
    name: str | None
    """The node's, if it is connected to this network."""
    place: str | None
    gpu: str | None
    gpu_count: int
    vram_gb: int | None
    tier: str | None
    hourly_usd: str
    """Its standing price for this order. A bid may differ, up to the order's highest price."""
    free_bond_usd: str
    measured: list[str]
    """Which of these facts were measured or read from the chain; the others are claimed."""


class OfferPriceRange(msgspec.Struct, frozen=True, kw_only=True):
    least_usd: str
    median_usd: str
    dearest_usd: str


class LeaseQuote(msgspec.Struct, frozen=True, kw_only=True):
    """What an order would meet and cost. Nothing was sent or held."""

    name: str
    count: int
    offers: list[StandingOffer]
    """Of those that could serve it, the cheapest first; at most 50."""
    able: int
    """How many could serve it."""
    providers: int
    """How many are registered and active."""
    funnel: list[PolicyFilterStep]
    """How many each condition of the order ruled out, in this order."""
    nearest_relaxations: list[str]
    """The smallest changes of the policy that would admit somebody, if nobody could serve it."""
    prices: OfferPriceRange | None
    """Of the standing offers; None without any."""
    cloud_prices: list[CloudPrice]
    cloud_note: str | None
    """Why there is no cloud price, or how to read it."""
    max_hourly_usd: str | None
    """The highest bid that the order takes. None if the policy names none and there is no offer to derive it from."""
    max_hourly_source: Literal["policy", "offers"] | None
    duration_s: int
    deposit_usd: str | None
    """Of each lease. It is the cap: no lease costs more."""
    total_usd: str | None
    """Of all of them: so many credits are held."""
    covers_s: int | None
    """How long the deposit lasts at the highest price."""
    max_attempts: int
    notes: list[str]
    """What a renter should know before signing."""


class LeaseProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of what runs in a lease. Its log, a command or a port show whether that is true."""

    phase: ProgramPhaseName | None
    """None while its node has said nothing to this process of the gateway."""
    since: int | None
    """Unix seconds, by the node's clock."""
    trouble: str | None
    """In the node's words."""
    exit_code: int | None
    restarts: int
    confirmed_running: bool | None
    """What the node's key signed when pay began: true, it runs; false, only its resources are held. None before that,
    and in lists."""
    warning: str | None
    """You pay for it, and it does not run."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    order_id: str | None
    """None until a block has the order."""
    phase: LeasePhase
    problem: str | None
    """Why it failed."""
    created_at: float
    image: str
    gpus: int
    cpus: float
    memory_gb: float
    disk_gb: float
    secrets: list[str]
    duration_s: int
    max_hourly_usd: str
    deposit_usd: str
    """As ordered. `order.deposit_usd` has what is left of it."""
    spec_hash: str
    order: MarketOrder | None
    """As the chain tells it, with its lease if a provider won it."""
    max_spend_usd: str | None = None
    """What this lease may cost at most; only its renter raises it."""
    money: LeaseMoney | None = None
    """Burn rate and runway; None until a block has the order."""
    ending: LeaseEnding | None = None
    """Who ended it and why; None while it goes on."""
    uptime: LeaseUptime | None = None
    """Over its failovers; None until it has started."""
    program: LeaseProgram | None = None
    """None before its provider has said anything."""


class LeaseDetails(Lease, frozen=True, kw_only=True):
    content: dict[str, Any]
    """The content document: image, command, environment, ports and the names of secrets. Every bidder can read it.
    After an accepted update it is the one that runs."""
    content_hash: str
    missing_secrets: list[str] = []
    """Names whose values its provider was not sent: it waits for them."""


class LeaseList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Lease]
    next: str | None = None
    """The `after` of the next page; None on the last one."""


class LeaseCreated(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The idempotency key."""
    name: str
    created: bool
    """False if the id was used before, for the same order."""
    max_hourly_usd: str
    total_usd: str
    """So many credits are held, or will come from what the chain's escrow owes you."""
    leases: list[Lease]
    notes: list[str]


class LeaseRequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the chain."""

    id: str
    kind: str
    state: str
    reason: str | None
    tx: str | None


class LeaseChanged(msgspec.Struct, frozen=True, kw_only=True):
    request: LeaseRequestInfo
    lease: Lease
    """Afterwards."""


class LeaseUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an extension or another change, or what it would be."""

    plan: LeaseChangePlan
    update: LeaseRequestInfo | None
    """The proposal to the provider; None of a dry run."""
    top_up: LeaseRequestInfo | None
    """What was added to the deposit for it."""
    accepted: bool
    """Whether the provider has accepted it. If not, it still may."""
    lease: Lease


class LeaseScaled(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of a name, after or, of a dry run, before."""

    name: str
    done: bool
    """False of a dry run."""
    kept: list[Lease]
    ended: list[Lease]
    """In the order in which they end: those without a provider first, then the newest."""
    ordered: list[Lease]
    to_order: int
    """How many are ordered anew."""
    deposit_usd: str
    """Of each new one."""
