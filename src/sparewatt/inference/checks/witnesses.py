"""Which nodes can be held against each other, and who is asked for a comparison.

Two nodes are comparable if they say that they serve the same model in the same quantization, on the same kind of model
server, and not with different weights. Another kind of server may sample greedily with other penalties.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.rng import Rng
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import ModelReport

LOOKED_AT_MAX = 256
"""Nodes of a model that are looked at for witnesses, from a random one on."""


class NodeFilter(Protocol):
    """The nodes that a request's own policy allows. Implemented by dispatch's gates."""

    def admits(self, node_id: NodeId, /) -> bool: ...


def group_of(row: NodeRow, model: ModelId) -> str:
    """The name under which the tolerance of comparable nodes is learned."""
    report = row.models.get(model)
    return "|".join((model, row.specs.backend, (report.quantization if report else None) or "unknown"))


def are_comparable(one: NodeRow, other: NodeRow, model: ModelId) -> bool:
    first, second = one.models.get(model), other.models.get(model)
    if first is None or second is None or group_of(one, model) != group_of(other, model):
        return False
    return not _weights_differ(first, second)


def _weights_differ(first: ModelReport, second: ModelReport) -> bool:
    digests = first.weights_digest, second.weights_digest
    return None not in digests and digests[0] != digests[1]


@dataclass(frozen=True, slots=True)
class Witnesses:
    table: NodeTable
    records: CheckRecords
    rng: Rng

    def is_trusted(self, row: NodeRow) -> bool:
        return self.records.is_own(row.owner) or self.records.of(row.id).is_trusted

    def owner_of(self, row: NodeRow) -> str:
        """Nodes that the operator vouches for are witnesses one by one."""
        return row.id if self.records.is_own(row.owner) or row.owner is None else str(row.owner)

    def pick(
        self,
        row: NodeRow,
        model: ModelId,
        *,
        count: int,
        allowed: NodeFilter | None = None,
        without: Collection[NodeId] = (),
    ) -> list[NodeRow]:
        """Up to `count` of different owners, none of them the node's own; trusted ones first."""
        found: dict[str, NodeRow] = {}
        for other in self._comparable(row, model):
            owner = self.owner_of(other)
            if other.id in without or owner == self.owner_of(row) or owner in found:
                continue
            if allowed is None or allowed.admits(other.id):
                found[owner] = other
        return sorted(found.values(), key=lambda each: not self.is_trusted(each))[:count]

    def _comparable(self, row: NodeRow, model: ModelId) -> Iterator[NodeRow]:
        columns = self.table.columns_of(model)
        nodes = list(columns.nodes) if columns is not None else []
        first = int(self.rng.random() * len(nodes))
        for node_id in (nodes[first:] + nodes[:first])[:LOOKED_AT_MAX]:
            other = self.table.get(node_id)
            if other is not None and other.id != row.id and _can_answer(other) and are_comparable(row, other, model):
                yield other


def _can_answer(row: NodeRow) -> bool:
    return row.connected and not row.load.draining and not row.is_suspended


def owner_account(row: NodeRow) -> AccountId:
    return row.owner or AccountId("")
