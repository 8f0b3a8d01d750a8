"""`/v1/rewards`: what an era paid to whom, the inputs from which anyone recomputes it, and the rule with its numbers.

An era's inputs are one document of whole numbers. They are public once the era has ended, and name no account: nodes,
addresses and amounts only. Shares are in millionths (`…_ppm`), units of work in millionths of one GPU with 24 GB
(`…_units`), money in millionths of a dollar (`…_micro`) or billionths (`…_nano`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

TierName = Literal["community", "verified", "datacenter"]


class TierReward(msgspec.Struct, frozen=True, kw_only=True):
    weight_ppm: int
    floor_ppm: int
    """A node that was up for a smaller share of the era gets nothing."""


class RewardRule(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of the rule. An era carries the ones that it was computed by."""

    version: int
    share_ppm: int
    """Of the era's fees that goes into the pool."""
    validators_ppm: int
    """Of the pool, where validators have voted."""
    uptime_ppm: int
    """Of the nodes' part, for the uptime bonus."""
    quality_ppm: int
    """Of the nodes' part, for the quality bonus. The rest is for availability."""
    unit_micro: int
    """What other accounts pay a node in a day for work that verifies one unit."""
    payer_ppm: int
    """The most of its claim that one payer verifies."""
    check_units: int
    """What one passed check verifies."""
    idle_ppm: int
    """The most of a claim that checks alone verify: the idle floor."""
    cap_ppm: int
    """The most that a node gets, of the fees that its work for other accounts brought; or its idle floor's worth."""
    ramp_days: int
    """Days without a failed check until a node counts in full."""
    check_failure_weight: int
    """How many passed checks a failed one outweighs."""
    uptime_from_ppm: int
    """The uptime bonus grows from here to all of the time."""
    quality_from_ppm: int
    tiers: dict[TierName, TierReward]
    classes: dict[str, int]
    """Units of one GPU, by class; "" is a machine without a known GPU."""


class NodeEraInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What gateways counted of one node in one era."""

    node: str
    payee: str | None
    """The address that is paid; None if the owner has none yet."""
    gpu_class: str
    gpu_units: int
    tier: TierName
    up_s: int
    known_s: int
    """Seconds in which the node was observed; pauses are left out."""
    days: int
    """On which it was up since its last failed check; this era's is one of them."""
    done: int
    """Jobs of other accounts, as those below."""
    failed: int
    checks_passed: int
    checks_failed: int
    payers_micro: list[int]
    """What each other account paid for its work with money, the most first. No free credits."""
    payers_done: list[int]
    """How many jobs each of them had done, in the same order."""
    fees_micro: int
    """What the network kept of that."""


class ValidatorEraInputs(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    stake_micro: int
    votes: int
    """Given in time, for what the chain accepted."""
    due: int
    jailed: bool


class EraInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an era's rewards follow from."""

    era: int
    since: int
    until: int
    """Unix seconds; the era ends before it."""
    rule: RewardRule
    held_nano: int
    """Deposits of the operator, and what earlier eras left."""
    inference_fees_nano: int
    lease_fees_nano: int
    nodes: list[NodeEraInputs]
    """By id."""
    validators: list[ValidatorEraInputs]
    """By address."""


class NodeReward(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part, with every factor of its weight."""

    node: str
    payee: str | None
    claimed_units: int
    """By the cards that it says it has."""
    worked_units: int
    """By what other accounts paid for."""
    idle_units: int
    """By checks that it passed: the floor of a node without work."""
    verified_units: int
    """The larger of both, never above the claim."""
    tier_ppm: int
    availability_ppm: int
    ramp_ppm: int
    quality_ppm: int
    weight: int
    most_micro: int
    """It gets no more than this, of all lines together."""
    availability_micro: int
    uptime_micro: int
    quality_micro: int
    why: str
    """In a sentence, what held its reward back most."""

    @property
    def total_micro(self) -> int:
        return self.availability_micro + self.uptime_micro + self.quality_micro


class ValidatorReward(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    weight: int
    micro: int


class EraRewards(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from an era's inputs."""

    era: int
    pool_micro: int
    validators_micro: int
    """Of the pool."""
    given_micro: int
    carried_nano: int
    """What stays for the next era: parts that nobody qualified for, and less than a millionth of a dollar."""
    nodes: list[NodeReward]
    validators: list[ValidatorReward]


# replies


class Era(msgspec.Struct, frozen=True, kw_only=True):
    era: int
    since: int
    until: int
    pool_micro: int
    pool_usd: str
    given_micro: int
    given_usd: str
    carried_nano: int
    """What stays in the pool for the next era."""
    inputs_hash: str
    """Of the published inputs, as RFC 8785 writes them (Keccak-256), in hex with 0x."""
    epoch: int | None
    """The reward batch whose root is on the chain, or will be; None if nothing was given."""
    root: str | None
    state: Literal["empty", "ready", "posted", "claimable"]
    """`ready`: the chain does not have its root yet. `posted`: the root waits for its delay."""


class EraList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[Era]
    next: str | None
    held_usd: str
    """In the pool now, before this era's fees."""
    held_nano: int
    era_s: int
    """How long an era is."""


class EraReply(Era, frozen=True, kw_only=True):
    """An era with everything that it was computed from, and everything that follows."""

    inputs: EraInputs
    rewards: EraRewards


class AccountReward(msgspec.Struct, frozen=True, kw_only=True):
    """What one node of the account got in one era."""

    era: int
    until: int
    node: str
    availability_micro: int
    uptime_micro: int
    quality_micro: int
    total_micro: int
    total_usd: str


class AccountRewardList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[AccountReward]
    next: str | None
    """An era: `after` of the next page."""
    waiting_micro: int
    """In batches whose root the chain does not have."""
    waiting_usd: str
    posted_micro: int
    posted_usd: str
    claimed_micro: int
    claimed_usd: str


class RewardFunding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a deposit of the operator into the pool of rewards."""

    id: str
    posted: bool
    held_nano: int
    held_usd: str


class RewardTargetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    to: Literal["account", "bond"]
    """`bond`: of the node's provider, as long as the network holds its key."""


class RewardTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node's rewards go from its next era on."""

    node: str
    to: Literal["account", "bond"]
