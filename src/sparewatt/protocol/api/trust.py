"""`/v1/nodes/{node}/trust` and `/v1/tiers`: a node's tier, record and last reward, each with what would change it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.api.rewards import NodeReward, TierName


class TierTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the table, against what the network knows of the node."""

    name: Literal["days", "uptime", "jobs", "completion", "checks_passed", "checks_failed", "bond", "attestation"]
    have: int
    need: int
    met: bool
    text: str


class NodeTierReport(msgspec.Struct, frozen=True, kw_only=True):
    tier: TierName
    since: float | None
    """Unix seconds; None for a node that never had another."""
    next_tier: TierName | None
    keeps: list[TierTerm] | UnsetType = UNSET
    """The terms by which it has its tier; for its owner, as the next."""
    wants: list[TierTerm] | UnsetType = UNSET
    """Those of the next tier, met or not."""


class FacetReport(msgspec.Struct, frozen=True, kw_only=True):
    """Shares in millionths. Other accounts get them rounded to a tenth."""

    name: Literal["availability", "completion", "correctness", "speed", "leases"]
    score_ppm: int
    lower_ppm: int
    """What nodes are ranked by."""
    good: int | UnsetType = UNSET
    """In millionths of an hour, a job, a check, an answer or a term, after forgetting; for its owner."""
    bad: int | UnsetType = UNSET
    rule: str
    """What counts, in a sentence."""


class RecordDayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the record is computed from, by day."""

    day: str
    up_s: int
    known_s: int
    good_units: int
    bad_units: int
    checks_passed: int
    checks_failed: int


class NodeTrust(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str
    tier: NodeTierReport
    reputation_ppm: int
    """Without availability. Other accounts get it rounded to a tenth."""
    half_life_days: int
    facets: list[FacetReport]
    days: list[RecordDayReport] | UnsetType = UNSET
    """The inputs; for its owner."""
    era: int | UnsetType = UNSET
    """The last one in which the node was counted."""
    reward: NodeReward | UnsetType = UNSET
    """What it got then, with every factor."""
    sentences: list[str] | UnsetType = UNSET
    """What changed in a week, and what would change it; for its owner."""


class TierTermRow(msgspec.Struct, frozen=True, kw_only=True):
    days: int
    uptime_ppm: int
    jobs: int
    completion_ppm: int
    checks_passed: int
    checks_failed: int
    bond_micro: int
    attested: bool


class TierTableRow(msgspec.Struct, frozen=True, kw_only=True):
    tier: TierName
    nodes: int
    """That have it now, of those that are known."""
    weight_ppm: int
    """In rewards."""
    floor_ppm: int
    """Below this uptime of an era there is no reward."""
    promote: TierTermRow | None
    """None: nothing is asked for."""
    keep: TierTermRow | None


class TierTable(msgspec.Struct, frozen=True, kw_only=True):
    """Lowest first."""

    object: Literal["list"] = "list"
    data: list[TierTableRow]
    window_days: int
    """All terms are about so many days."""
