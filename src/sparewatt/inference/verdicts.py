"""Verdicts of a policy on each node of a model, and the lists of allowed nodes that follow. Records and pure functions.

Uptime, tier and what auditors attest come from the network, not from the node (`VerifiedFacts`). A region that the
round trip refutes counts as unknown, and an unknown fact satisfies no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.inference.capabilities import reported_by
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.model import AllowedNodes, PositionList
from sparewatt.inference.matcher.node_row import NodeRow, VerifiedFacts
from sparewatt.policy.check import CompiledPolicy, NodeFacts
from sparewatt.policy.field_types.sets import normalized_names
from sparewatt.policy.gpus import gpu_class_of, gpu_name
from sparewatt.policy.quantization import quantization_of
from sparewatt.policy.regions import place_of
from sparewatt.policy.zones import UNKNOWN_ZONE, zone_of_region
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs

BYTES_PER_GB = 10**9
FRESH_S = 0.5
"""How old a cached list may be."""
RTT_DRIFT_S = 0.005
"""Facts are rebuilt for a list only when the round-trip time changed by more than this."""
ORDER = "order"
"""The filter of a policy's `order`: nodes that it does not name in this stage."""


def facts_of(row: NodeRow) -> list[NodeFacts]:
    """What a policy can look at, one entry per model; one entry without a model for a node that has none."""
    return [facts_with(row, model) for model in row.models.values()] or [facts_with(row, None)]


def facts_with(row: NodeRow, model: ModelReport | None) -> NodeFacts:
    specs, speed, verified = row.specs, model.measured if model else None, row.verified
    return NodeFacts(
        node_id=row.id,
        names=normalized_names((row.id, specs.name, *([row.owner] if row.owner else []))),
        place=None if row.is_region_refuted else place_of(specs.region),
        zone=UNKNOWN_ZONE if row.is_region_refuted else zone_of_region(specs.region),
        gpu=gpu_name(specs.gpu) or None,
        gpu_class=gpu_class_of(specs.gpu),
        vram_gb=specs.vram_bytes / BYTES_PER_GB,
        gpu_count=specs.gpu_count,
        uptime=verified.uptime,
        compliance=verified.compliance,
        attested_by=verified.attested_by,
        tier=verified.tier,
        hourly_nano=specs.hourly_price_nano,
        model=model.id if model else None,
        quantization=quantization_of(model.quantization) if model else None,
        prompt_nano=model.prompt_price_nano if model else None,
        completion_nano=model.completion_price_nano if model else None,
        throughput_tps=speed.decode_tps if speed else None,
        ttft_ms=(speed.ttft_s + row.rtt_s) * 1000 if speed else None,
        warm=model is not None and model.state == "warm",
        capabilities=_capabilities(specs, model),
    )


def _capabilities(specs: NodeSpecs, model: ModelReport | None) -> frozenset[str] | None:
    reported = reported_by(specs, model) if model is not None else None
    return frozenset(reported) if reported is not None else None


class CachedFacts(NamedTuple):
    """A node's facts, and what they were read from."""

    specs: NodeSpecs
    owner: AccountId | None
    rtt_s: float
    verified: VerifiedFacts
    is_region_refuted: bool
    facts: NodeFacts

    def holds_for(self, row: NodeRow, *, drift_s: float) -> bool:
        is_same = self.specs is row.specs and self.owner == row.owner and self.verified is row.verified
        is_same = is_same and self.is_region_refuted == row.is_region_refuted
        return is_same and abs(self.rtt_s - row.rtt_s) <= drift_s


def cached_facts(row: NodeRow, model: ModelId, before: Mapping[NodeId, CachedFacts]) -> CachedFacts:
    cached = before.get(row.id)
    if cached is not None and cached.holds_for(row, drift_s=RTT_DRIFT_S):
        return cached
    facts = facts_with(row, row.models[model])
    return CachedFacts(row.specs, row.owner, row.rtt_s, row.verified, row.is_region_refuted, facts)


class Verdict(NamedTuple):
    facts: NodeFacts
    refused_by: str | None
    """The field of the policy that rules the node out."""
    order_rank: int | None
    """The first place of the policy's order that names the node."""


@dataclass(slots=True)
class PolicyVerdicts:
    """All verdicts of one policy on the nodes of one model."""

    checks: CompiledPolicy
    columns: NodeColumns | None = None
    membership_version: int = 0
    specs_version: int = 0
    built_at_s: float | None = None
    """None: to be built before use."""
    used_at_s: float = 0.0
    verdicts: dict[NodeId, Verdict] = field(default_factory=dict)
    stages: Sequence[AllowedNodes | None] = ()
    hints: Sequence[str] | None = None
    """Relaxations in words, once they were asked for."""

    def is_stale(self, columns: NodeColumns, now_s: float, *, is_live: bool) -> bool:
        if self.built_at_s is None or not self._has_members_of(columns):
            return True
        return now_s - self.built_at_s >= FRESH_S and (is_live or columns.specs_version != self.specs_version)

    def is_current(self, columns: NodeColumns) -> bool:
        """Whether no node has joined, left or reported since."""
        is_same = self._has_members_of(columns) and columns.specs_version == self.specs_version
        return is_same and self.built_at_s is not None

    def _has_members_of(self, columns: NodeColumns) -> bool:
        return columns is self.columns and columns.membership_version == self.membership_version

    def rebuild(self, facts: Sequence[NodeFacts], columns: NodeColumns, order: Sequence[str], *, now_s: float) -> None:
        before = self.verdicts
        self.verdicts = {NodeId(fact.node_id): _verdict(fact, self.checks, order, before) for fact in facts}
        self.stages = _stages(self, columns)
        self.columns, self.membership_version, self.specs_version = (
            columns,
            columns.membership_version,
            columns.specs_version,
        )
        self.built_at_s, self.hints = now_s, None


def _verdict(
    facts: NodeFacts, checks: CompiledPolicy, order: Sequence[str], before: Mapping[NodeId, Verdict]
) -> Verdict:
    verdict = before.get(NodeId(facts.node_id))
    if verdict is not None and verdict.facts is facts:
        return verdict
    rank = next((rank for rank, name in enumerate(order) if name in facts.names), None) if order else None
    return Verdict(facts, checks.first_mismatch(facts), rank)


def _stages(built: PolicyVerdicts, columns: NodeColumns) -> Sequence[AllowedNodes | None]:
    """First the nodes that the order names, one place after the other; then all that the checks leave."""
    rejected = Counter(refused_by for _, refused_by, _ in built.verdicts.values() if refused_by is not None)
    left = {node_id: rank for node_id, (_, refused_by, rank) in built.verdicts.items() if refused_by is None}
    by_rank: dict[int, list[NodeId]] = {}
    for node_id, rank in left.items():
        if rank is not None:
            by_rank.setdefault(rank, []).append(node_id)
    first = [
        _allowed(nodes, columns, {**rejected, ORDER: len(left) - len(nodes)}) for _, nodes in sorted(by_rank.items())
    ]
    return [*first, _allowed(left.keys(), columns, rejected) if built.checks.checks else None]


def _allowed(nodes: Collection[NodeId], columns: NodeColumns, rejected: Mapping[str, int]) -> AllowedNodes:
    allowed = frozenset(nodes)
    positions = np.flatnonzero(np.fromiter((node_id in allowed for node_id in columns.nodes), bool, len(columns)))
    counts = {name: count for name, count in rejected.items() if count}
    return AllowedNodes(allowed, counts, PositionList(columns, columns.membership_version, positions))
