"""What a policy says about each node of a model, and the lists that follow from it. Records and pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.inference.capabilities import NOTHING_REQUIRED, CapabilityCheck, RequiredCapabilities, says_of
from sparewatt.inference.facts import facts_with
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.model import AllowedNodes, NodeRow, PositionList
from sparewatt.policy.check import FACT_OF, CompiledPolicy, FieldCheck, NodeFacts, compile_policy
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.model import MaxPrice, Policy
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs

FRESH_S = 0.5
RTT_DRIFT_S = 0.005
"""A way that grew by less is not judged anew before somebody is chosen."""
USUAL_PRICE = "usual_price"
"""The filter that keeps a job off nodes dearer than what was held for it, where its policy names no price."""
ORDER = "order"


class EligibilityTerms(NamedTuple):
    """What a list of allowed nodes depends on."""

    policy: Policy
    usual: MaxPrice | None
    """The most that is paid in the directions for which the policy names no price."""
    model: ModelId
    needs: RequiredCapabilities = NOTHING_REQUIRED

    @property
    def is_live(self) -> bool:
        """Whether it looks at something that changes without a report."""
        return self.policy.max_ttft_ms is not None

    def checks(self) -> CompiledPolicy:
        able = CapabilityCheck(declared=self.needs.declared)
        checks: list[FieldCheck] = [(name, needed, able, says_of) for name, needed in self.needs.filters()]
        checks += compile_policy(self.policy).checks
        if self.usual is not None:
            checks.append((USUAL_PRICE, self.usual, FIELDS["max_price"], FACT_OF["max_price"]))
        return CompiledPolicy(tuple(checks))

    def whole_policy(self) -> Policy:
        """With what is usual as a price of its own: whoever is too dear can be had by naming another."""
        if self.usual is None:
            return self.policy
        asked = self.policy.max_price or MaxPrice()
        prompt = self.usual.prompt if asked.prompt is None else asked.prompt
        completion = self.usual.completion if asked.completion is None else asked.completion
        return replace(self.policy, max_price=MaxPrice(prompt, completion))


def is_dearer(usual: MaxPrice, prices: tuple[int, int]) -> bool:
    """Prices of prompt and of completion."""
    return not FIELDS["max_price"].admits(usual, prices)


def prices_of(report: ModelReport) -> tuple[int, int]:
    return report.prompt_price_nano, report.completion_price_nano


class KnownFacts(NamedTuple):
    """A node's facts, and what they were taken from."""

    specs: NodeSpecs
    owner: AccountId | None
    rtt_s: float
    facts: NodeFacts

    def holds_for(self, row: NodeRow, *, drift_s: float) -> bool:
        is_same = self.specs is row.specs and self.owner == row.owner
        return is_same and abs(self.rtt_s - row.rtt_s) <= drift_s


def known_facts(row: NodeRow, model: ModelId, before: Mapping[NodeId, KnownFacts]) -> KnownFacts:
    known = before.get(row.id)
    if known is not None and known.holds_for(row, drift_s=RTT_DRIFT_S):
        return known
    return KnownFacts(row.specs, row.owner, row.rtt_s, facts_with(row, row.models[model]))


class Verdict(NamedTuple):
    facts: NodeFacts
    refused: str | None
    """The field that rules it out."""
    turn: int | None
    """Where the policy's order names it first."""


@dataclass(slots=True)
class PolicyVerdicts:
    """All verdicts of one policy on the nodes of one model."""

    checks: CompiledPolicy
    entries: NodeColumns | None = None
    changes: int = 0
    reports: int = 0
    made_at_s: float | None = None
    """None: to be judged before it is used."""
    verdicts: dict[NodeId, Verdict] = field(default_factory=dict)
    stages: Sequence[AllowedNodes | None] = ()
    hints: Sequence[str] | None = None
    """What would let somebody through, if anybody asked."""

    def is_old(self, entries: NodeColumns, now_s: float, *, is_live: bool) -> bool:
        if self.made_at_s is None or entries is not self.entries or entries.changes != self.changes:
            return True
        return now_s - self.made_at_s >= FRESH_S and (is_live or entries.reports != self.reports)

    def knows_all(self, entries: NodeColumns) -> bool:
        """Whether nobody has come, gone or reported since."""
        is_same = entries is self.entries and entries.changes == self.changes and entries.reports == self.reports
        return is_same and self.made_at_s is not None

    def judge(self, facts: Sequence[NodeFacts], entries: NodeColumns, order: Sequence[str], *, now_s: float) -> None:
        before = self.verdicts
        self.verdicts = {NodeId(fact.node_id): _verdict(fact, self.checks, order, before) for fact in facts}
        self.stages = _stages(self, entries)
        self.entries, self.changes, self.reports = entries, entries.changes, entries.reports
        self.made_at_s, self.hints = now_s, None


def _verdict(
    facts: NodeFacts, checks: CompiledPolicy, order: Sequence[str], before: Mapping[NodeId, Verdict]
) -> Verdict:
    verdict = before.get(NodeId(facts.node_id))
    if verdict is not None and verdict.facts is facts:
        return verdict
    turn = next((turn for turn, name in enumerate(order) if name in facts.names), None) if order else None
    return Verdict(facts, checks.first_mismatch(facts), turn)


def _stages(judged: PolicyVerdicts, entries: NodeColumns) -> Sequence[AllowedNodes | None]:
    """First those whom the order names, one after the other; then whomever the checks leave."""
    dropped = Counter(refused for _, refused, _ in judged.verdicts.values() if refused is not None)
    left = {node_id: turn for node_id, (_, refused, turn) in judged.verdicts.items() if refused is None}
    named: dict[int, list[NodeId]] = {}
    for node_id, turn in left.items():
        if turn is not None:
            named.setdefault(turn, []).append(node_id)
    first = [_seated(named[turn], entries, {**dropped, ORDER: len(left) - len(named[turn])}) for turn in sorted(named)]
    return [*first, _seated(left.keys(), entries, dropped) if judged.checks.checks else None]


def _seated(nodes: Collection[NodeId], entries: NodeColumns, dropped: Mapping[str, int]) -> AllowedNodes:
    allowed = frozenset(nodes)
    places = np.flatnonzero(np.fromiter((node_id in allowed for node_id in entries.nodes), bool, len(entries)))
    counts = {name: count for name, count in dropped.items() if count}
    return AllowedNodes(allowed, counts, PositionList(entries, entries.changes, places))
