"""One pass over all nodes for a page of `GET /v1/nodes`: which it shows, and how many each filter dropped."""

from __future__ import annotations

import math
import sys
from collections import Counter
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from sparewatt.api.paging import PageSelection
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.verdicts import facts_of
from sparewatt.policy.check import NodeFacts
from sparewatt.policy.formatter import explain_relaxation
from sparewatt.policy.list_order import sort_key
from sparewatt.policy.model import Policy
from sparewatt.policy.relaxation import check_node, count_dropped, relaxations
from sparewatt.protocol.api.nodes import PolicyFilterStep

RELAXATIONS_FACTS_MAX = 2_000
"""Models of connected nodes that are looked at for what would help a policy that allows nobody: some 20 ms."""


class NameKey(NamedTuple):
    """Connected nodes first, then by name."""

    is_away: bool
    name: str
    id: str


class PolicyKey(NamedTuple):
    """Connected nodes first, then in the policy's order."""

    is_away: bool
    position: float
    unmet: float
    measure: float
    name: str
    id: str


class NodeListing:
    def __init__(self, policy: Policy | None, *, after: NameKey | PolicyKey | None, limit: int) -> None:
        self._policy = policy
        self.page: PageSelection[NameKey | PolicyKey, NodeRow] = PageSelection(after=after, limit=limit)
        self.total = 0
        self._dropped: Counter[str | None] = Counter()
        """By the field that ruled a node out; None for those that are allowed."""
        self._connected: list[list[NodeFacts]] = []
        self._facts_kept = 0

    def add(self, row: NodeRow) -> int:
        """Returns how many models were looked at."""
        self.total += 1
        if self._policy is None:
            self.page.add(NameKey(not row.connected, row.specs.name, row.id), row)
            return 1
        facts = facts_of(row)
        mismatch = check_node(self._policy, facts)
        self._dropped[mismatch] += 1
        if mismatch is None:
            position, unmet, measure = (_finite(value) for value in sort_key(self._policy, facts))
            self.page.add(PolicyKey(not row.connected, position, unmet, measure, row.specs.name, row.id), row)
        elif row.connected and self._facts_kept < RELAXATIONS_FACTS_MAX:
            self._connected.append(facts)
            self._facts_kept += len(facts)
        return len(facts)

    @property
    def allowed(self) -> int | UnsetType:
        """How many nodes the policy allows, on all pages."""
        return UNSET if self._policy is None else self._dropped[None]

    def funnel(self) -> list[PolicyFilterStep] | UnsetType:
        if self._policy is None:
            return UNSET
        return [
            PolicyFilterStep(filter=step.field, dropped=step.dropped, left=step.left)
            for step in count_dropped(self._policy, self._dropped)
        ]

    def nearest_relaxations(self) -> list[str] | UnsetType:
        if self._policy is None:
            return UNSET
        found = [] if self._dropped[None] else relaxations(self._policy, self._connected)
        return [explain_relaxation(relaxation) for relaxation in found]


def _finite(value: float) -> float:
    """Unknown facts come last; JSON, which cursors are written in, has no infinity."""
    return sys.float_info.max if value == math.inf else value
