"""Which nodes a job's policy allows. Judged node by node, and kept for a moment per policy and model.

A policy looks at what a node reports, which changes seldom, while jobs come by the thousand. So a verdict is kept until
the node reports anew, and the list is put together at most twice a second. Whoever is then chosen is judged once more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import POLICIES_COMPILED_MAX
from sparewatt.inference.facts import facts_with
from sparewatt.inference.matcher.model import Allowed, NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.check import Compiled, NodeFacts, compile_policy
from sparewatt.policy.model import ANY, Policy
from sparewatt.policy.relax import relaxations
from sparewatt.policy.words import explain_relaxation
from sparewatt.protocol.node import NodeSpecs

FRESH_S = 0.5


@dataclass(slots=True)
class Judged:
    """All verdicts of one policy on the nodes of one model."""

    made_at_s: float = -FRESH_S
    allowed: Allowed = field(default_factory=Allowed)
    verdicts: dict[NodeId, tuple[NodeSpecs, str | None]] = field(default_factory=dict)


class Eligibility:
    def __init__(self, table: NodeTable, *, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._judged: OrderedDict[tuple[Policy, ModelId], Judged] = OrderedDict()

    def gate(self, policy: Policy, model: ModelId, *, payer: AccountId | None = None) -> Gate | None:
        """What a job must pass. None if everybody may serve it; `payer` is one whose own nodes may not."""
        has_own = payer is not None and bool(self._table.nodes_of(payer))
        checks = compile_policy(policy) if policy != ANY else None
        checks = checks if checks is not None and checks.checks else None
        if not has_own and checks is None and policy.order is None:
            return None
        return Gate(self, policy, checks, model, payer if has_own else None)

    def allowed(self, policy: Policy, checks: Compiled, model: ModelId) -> Allowed:
        judged = self._judged.setdefault((policy, model), Judged())
        self._judged.move_to_end((policy, model))
        while len(self._judged) > POLICIES_COMPILED_MAX:
            self._judged.popitem(last=False)
        if self._clock.now_s() - judged.made_at_s >= FRESH_S:
            self._judge(judged, checks, model)
        return judged.allowed

    def _judge(self, judged: Judged, checks: Compiled, model: ModelId) -> None:
        entries = self._table.entries(model)
        rows = [row for node_id in entries.nodes if (row := self._table.get(node_id)) is not None] if entries else []
        known = judged.verdicts
        judged.verdicts = {row.id: _verdict(row, checks, model, known) for row in rows}
        dropped = Counter(reason for _, reason in judged.verdicts.values() if reason is not None)
        nodes = frozenset(node_id for node_id, (_, reason) in judged.verdicts.items() if reason is None)
        judged.allowed = Allowed(nodes, dict(dropped))
        judged.made_at_s = self._clock.now_s()

    def refusal(self, node_id: NodeId, checks: Compiled, model: ModelId) -> str | None:
        """The field that rules a node out by what is known of it right now."""
        row = self._table.get(node_id)
        return None if row is None else _refusal(row, checks, model)

    def nodes_of(self, account: AccountId) -> frozenset[NodeId]:
        return frozenset(self._table.nodes_of(account))

    def named(self, names: Sequence[str], model: ModelId) -> list[frozenset[NodeId]]:
        """For each name (a node's id or name, or its owner's account), the nodes of the model that bear it."""
        bearers: dict[str, set[NodeId]] = {name: set() for name in names}
        for facts in self.facts(model):
            for name in facts.names & bearers.keys():
                bearers[name].add(NodeId(facts.node_id))
        return [frozenset(found) for found in bearers.values()]

    def facts(self, model: ModelId) -> list[NodeFacts]:
        """Of every node that has the model, for explanations."""
        entries = self._table.entries(model)
        rows = [row for node_id in entries.nodes if (row := self._table.get(node_id)) is not None] if entries else []
        return [facts_with(row, row.models[model]) for row in rows if model in row.models]


def _verdict(
    row: NodeRow, checks: Compiled, model: ModelId, known: Mapping[NodeId, tuple[NodeSpecs, str | None]]
) -> tuple[NodeSpecs, str | None]:
    before = known.get(row.id)
    if before is not None and before[0] is row.specs:
        return before
    return row.specs, _refusal(row, checks, model)


def _refusal(row: NodeRow, checks: Compiled, model: ModelId) -> str | None:
    report = row.models.get(model)
    refused = checks.verdict(facts_with(row, report)) if report is not None else None
    return refused.field if refused is not None else None


@dataclass(frozen=True, slots=True)
class Gate:
    """One job's conditions on who may serve it."""

    eligibility: Eligibility
    policy: Policy
    checks: Compiled | None
    model: ModelId
    payer: AccountId | None

    def stages(self) -> list[Allowed | None]:
        """First those whom the policy names in order, one after the other; then whomever it leaves."""
        left = self.eligibility.allowed(self.policy, self.checks, self.model) if self.checks is not None else None
        if self.policy.order is None:
            return [left]
        named = self.eligibility.named(self.policy.order, self.model)
        first = [nodes if left is None else nodes & left.nodes for nodes in named]
        return [*(Allowed(nodes) for nodes in first if nodes), left]

    def own_nodes(self) -> frozenset[NodeId]:
        """The payer's own, which may not serve a job that free credits pay."""
        return self.eligibility.nodes_of(self.payer) if self.payer is not None else frozenset()

    def relaxations(self) -> list[str]:
        nodes = [[facts] for facts in self.eligibility.facts(self.model)]
        return [explain_relaxation(found) for found in relaxations(self.policy, nodes)]

    def admits(self, node_id: NodeId) -> bool:
        """Judged anew: a list that is half a second old must not let anybody through."""
        if node_id in self.own_nodes():
            return False
        return self.checks is None or self.eligibility.refusal(node_id, self.checks, self.model) is None
