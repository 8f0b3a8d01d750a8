"""Which nodes a job's policy allows. Judged node by node, and kept per policy and model.

A policy looks at what a node reports, which changes seldom, while jobs come by the thousand. So a verdict is kept until
the node reports anew, and a list is put together at most twice a second, or when a node came or went. Whoever is then
chosen is judged once more, by what is known right now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import POLICIES_COMPILED_MAX, RELAXATIONS_NODES_MAX, VERDICTS_KEPT_MAX
from sparewatt.inference.capabilities import NOTHING_REQUIRED, RequiredCapabilities, is_able
from sparewatt.inference.facts import facts_with
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.model import AllowedNodes
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import (
    FRESH_S,
    EligibilityTerms,
    KnownFacts,
    PolicyVerdicts,
    is_dearer,
    known_facts,
    prices_of,
)
from sparewatt.policy.check import CompiledPolicy, NodeFacts, compile_policy
from sparewatt.policy.formatter import explain_relaxation
from sparewatt.policy.model import ANY, MaxPrice, Policy
from sparewatt.policy.relaxation import relaxations

_NEVER = -2
"""No count of what was said, not even of a model that nobody has."""
_EVERYBODY: Sequence[AllowedNodes | None] = (None,)
_NOBODY: Sequence[AllowedNodes | None] = (AllowedNodes(),)


class Eligibility:
    def __init__(self, table: NodeTable, *, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._judged: OrderedDict[EligibilityTerms, PolicyVerdicts] = OrderedDict()
        self._verdicts = 0
        self._known: dict[ModelId, dict[NodeId, KnownFacts]] = {}
        self._dearest: dict[ModelId, HighestPrices] = {}
        self._able: dict[tuple[ModelId, RequiredCapabilities], UniformCapability] = {}
        self._gates: dict[
            tuple[Policy, ModelId, AccountId | None, MaxPrice | None, RequiredCapabilities], PolicyGate
        ] = {}
        """One for all jobs that are alike."""

    def gate(
        self,
        policy: Policy,
        model: ModelId,
        *,
        payer: AccountId | None = None,
        usual: MaxPrice | None = None,
        needs: RequiredCapabilities = NOTHING_REQUIRED,
    ) -> PolicyGate | None:
        """What a job must pass; None if everybody may serve it.

        `payer` is one whose own nodes may not. `usual` is the most that is paid where the policy names no price.
        `needs` is what a node's model must be able to do.
        """
        checks = compile_policy(policy) if policy is not ANY else None
        checks = checks if checks is not None and checks.checks else None
        if payer is None and usual is None and checks is None and policy.order is None and not needs.can:
            return None
        key = (policy, model, payer, usual, needs)
        gate = self._gates.get(key)
        if gate is None:
            if len(self._gates) >= POLICIES_COMPILED_MAX:
                self._gates.clear()
            gate = self._gates[key] = PolicyGate(self, policy, checks, model, payer, usual, needs)
        return gate

    def stages(self, terms: EligibilityTerms) -> Sequence[AllowedNodes | None]:
        """First those whom the policy names in order, one after the other; then whomever it leaves."""
        entries = self._table.columns_of(terms.model)
        if entries is None:
            return _NOBODY
        judged = self._judged.get(terms)
        if judged is None:
            judged = self._judged[terms] = PolicyVerdicts(terms.checks())
        self._judged.move_to_end(terms)
        now_s = self._clock.now_s()
        if judged.is_old(entries, now_s, is_live=terms.is_live):
            before = len(judged.verdicts)
            judged.judge(self.facts(terms.model), entries, terms.policy.order or (), now_s=now_s)
            self._verdicts += len(judged.verdicts) - before
            self._forget_oldest()
        return judged.stages

    def _forget_oldest(self) -> None:
        """The latest stays, whatever its size: it is in use."""
        while len(self._judged) > 1 and (
            len(self._judged) > POLICIES_COMPILED_MAX or self._verdicts > VERDICTS_KEPT_MAX
        ):
            _, gone = self._judged.popitem(last=False)
            self._verdicts -= len(gone.verdicts)

    def now_s(self) -> float:
        return self._clock.now_s()

    def has_dearer(self, usual: MaxPrice, model: ModelId) -> bool:
        """Whether anybody asks for more, as of a moment ago."""
        now_s, known = self._clock.now_s(), self._dearest.get(model)
        if known is None or now_s - known.made_at_s >= FRESH_S:
            if len(self._dearest) >= POLICIES_COMPILED_MAX:
                self._dearest.clear()
            known = self._dearest[model] = HighestPrices(self._table.dearest_price(model), self.said(model), now_s)
        return is_dearer(usual, known.prices)

    def all_are_able(self, needs: RequiredCapabilities, model: ModelId) -> bool:
        """Whether every node that has the model can do this, as of a moment ago."""
        entries, now_s = self._table.columns_of(model), self._clock.now_s()
        if entries is None:
            return True
        known = self._able.get((model, needs))
        if known is None or known.is_old(entries, now_s):
            if len(self._able) >= POLICIES_COMPILED_MAX:
                self._able.clear()
            holds = all(is_able(needs, self._says(node_id, model)) for node_id in entries.nodes)
            known = self._able[model, needs] = UniformCapability(
                holds, entries, entries.membership_version, entries.version, now_s
            )
        return known.holds

    def is_sure(self, said: int, *, usual: MaxPrice | None, needs: RequiredCapabilities, model: ModelId) -> bool:
        """Whether the answers of the two above, of a moment ago, take in everything that was said until then."""
        dearest, able = self._dearest.get(model), self._able.get((model, needs))
        knows_prices = usual is None or (dearest is not None and dearest.said == said)
        return knows_prices and (not needs.can or (able is not None and able.said == said))

    def has_heard_all(self, terms: EligibilityTerms) -> bool:
        """Whether the list for these terms was made of all that nodes have said by now."""
        judged, entries = self._judged.get(terms), self._table.columns_of(terms.model)
        return judged is not None and entries is not None and judged.knows_all(entries)

    def said(self, model: ModelId) -> int:
        """How often a node came to a model, left it, or said something new."""
        entries = self._table.columns_of(model)
        return -1 if entries is None else entries.version

    def was_asked(self, node_id: NodeId, model: ModelId) -> bool:
        """Whether a node is among those whose prices and abilities are looked at when all are."""
        row = self._table.get(node_id)
        seat = row.positions.get(model) if row is not None else None
        return row is not None and seat is not None and row.connected and seat.figures.is_measured

    def _says(self, node_id: NodeId, model: ModelId) -> Collection[str] | None:
        row = self._table.get(node_id)
        report = row.models.get(model) if row is not None else None
        return report.capabilities if report is not None else None

    def refuses(self, node_id: NodeId, terms: EligibilityTerms, checks: CompiledPolicy | None) -> bool:
        """By what is known of it right now. A list that still had it is put together anew."""
        row = self._table.get(node_id)
        report = row.models.get(terms.model) if row is not None else None
        if row is None or report is None:
            return True
        is_refused = terms.usual is not None and is_dearer(terms.usual, prices_of(report))
        is_refused = is_refused or not is_able(terms.needs, report.capabilities)
        if checks is not None and not is_refused:
            is_refused = checks.first_mismatch(self._facts_now(row, terms)) is not None
        if is_refused:
            self._look_again(node_id, terms)
        return is_refused

    def _facts_now(self, row: NodeRow, terms: EligibilityTerms) -> NodeFacts:
        known = self._known.get(terms.model, {}).get(row.id)
        if known is not None and known.holds_for(row, drift_s=0.0 if terms.is_live else row.rtt_s + known.rtt_s):
            return known.facts
        return facts_with(row, row.models[terms.model])

    def _look_again(self, node_id: NodeId, terms: EligibilityTerms) -> None:
        self._dearest.pop(terms.model, None)
        self._known.get(terms.model, {}).pop(node_id, None)
        self._able.pop((terms.model, terms.needs), None)
        for usual, needs in product((terms.usual, None), (terms.needs, NOTHING_REQUIRED)):
            key = terms._replace(usual=usual, needs=needs)
            if key in self._judged:
                self._judged[key].made_at_s = None

    def relaxations(self, terms: EligibilityTerms) -> list[str]:
        """What would let somebody through. Worked out once per list: whoever fails, fails again and again."""
        judged = self._judged.get(terms)
        if judged is not None and judged.hints is not None:
            return list(judged.hints)
        facts = [fact for fact in self._facts_of_present(terms.model) if is_able(terms.needs, fact.capabilities)]
        nodes = [[fact] for fact in facts[:RELAXATIONS_NODES_MAX]]
        is_part = len(facts) > len(nodes)
        hints = [explain_relaxation(found, is_part=is_part) for found in relaxations(terms.whole_policy(), nodes)]
        if judged is not None:
            judged.hints = hints
        return list(hints)

    def _facts_of_present(self, model: ModelId) -> list[NodeFacts]:
        """A node that is away would not serve, whatever the policy says."""
        self.facts(model)
        found = self._known.get(model, {})
        return [known.facts for node_id, known in found.items() if self._is_here(node_id)]

    def _is_here(self, node_id: NodeId) -> bool:
        row = self._table.get(node_id)
        return row is not None and row.connected

    def nodes_of(self, account: AccountId) -> Collection[NodeId]:
        return self._table.nodes_of(account)

    def facts(self, model: ModelId) -> list[NodeFacts]:
        """Of every node that has the model. Kept for all policies: to put them together takes longest."""
        entries, before = self._table.columns_of(model), self._known.pop(model, {})
        if entries is None:
            return []
        rows = [row for node_id in entries.nodes if (row := self._table.get(node_id)) is not None]
        known = self._known[model] = {row.id: known_facts(row, model, before) for row in rows}
        return [found.facts for found in known.values()]


class HighestPrices(NamedTuple):
    """The highest prices of a model, and what they were taken from."""

    prices: tuple[int, int]
    said: int
    made_at_s: float


class UniformCapability(NamedTuple):
    """Whether all nodes of a model can do something, and what that was taken from."""

    holds: bool
    entries: NodeColumns
    changes: int
    said: int
    made_at_s: float

    def is_old(self, entries: NodeColumns, now_s: float) -> bool:
        if entries is not self.entries or entries.membership_version != self.changes:
            return True
        return entries.version != self.said and now_s - self.made_at_s >= FRESH_S


@dataclass(slots=True)
class PolicyGate:
    """One job's conditions on who may serve it. Implements dispatch's Gate."""

    eligibility: Eligibility
    policy: Policy
    checks: CompiledPolicy | None
    model: ModelId
    payer: AccountId | None = None
    usual: MaxPrice | None = None
    needs: RequiredCapabilities = NOTHING_REQUIRED

    _known: Sequence[AllowedNodes | None] = _EVERYBODY
    """Whom it leaves, by what was known when it was last looked at; until then, unless a node says something."""
    _known_until_s: float = 0.0
    _known_said: int = _NEVER
    _is_sure: bool = False
    """Whether that took in everything that nodes had said: then nobody of those can be refused until one says more."""

    def stages(self) -> Sequence[AllowedNodes | None]:
        """Whoever is then chosen is judged once more (`admits`): so what was seen a moment ago is good enough."""
        now_s, said = self.eligibility.now_s(), self.eligibility.said(self.model)
        if now_s < self._known_until_s and said == self._known_said:
            return self._known
        terms = self._terms()
        asks_nothing = self._asks_nothing(terms)
        self._known = _EVERYBODY if asks_nothing else self.eligibility.stages(terms)
        if terms.is_live:
            self._forget()
            return self._known
        self._known_until_s, self._known_said = now_s + FRESH_S, said
        is_sure = self.eligibility.is_sure(said, usual=self.usual, needs=self.needs, model=self.model)
        self._is_sure = is_sure and (asks_nothing or (self.checks is None and self.eligibility.has_heard_all(terms)))
        return self._known

    def _forget(self) -> None:
        self._known_until_s, self._known_said, self._is_sure = 0.0, _NEVER, False

    def _terms(self) -> EligibilityTerms:
        """Nearly always nobody is dearer than usual, and all can do it: then nobody needs to be left out for it."""
        is_dear = self.usual is not None and self.eligibility.has_dearer(self.usual, self.model)
        are_able = not self.needs.can or self.eligibility.all_are_able(self.needs, self.model)
        return EligibilityTerms(
            self.policy, self.usual if is_dear else None, self.model, NOTHING_REQUIRED if are_able else self.needs
        )

    def _asks_nothing(self, terms: EligibilityTerms) -> bool:
        asks_none = self.checks is None and terms.usual is None and not terms.needs.can
        return asks_none and self.policy.order is None

    def payer_nodes(self) -> Collection[NodeId]:
        """The payer's own, which may not serve a job that free credits pay."""
        return self.eligibility.nodes_of(self.payer) if self.payer is not None else ()

    def admits(self, node_id: NodeId) -> bool:
        """Judged anew: a list that is half a second old must not let anybody through.

        Only where the policy itself asks nothing, and nobody has said anything since, is it known already.
        """
        if node_id in self.payer_nodes():
            return False
        is_known = self._is_sure and self._known_said == self.eligibility.said(self.model)
        if is_known and self._leaves(node_id) and self.eligibility.was_asked(node_id, self.model):
            return True
        terms = EligibilityTerms(self.policy, self.usual, self.model, self.needs)
        is_refused = self.eligibility.refuses(node_id, terms, self.checks)
        if is_refused:
            self._forget()
        return not is_refused

    def _leaves(self, node_id: NodeId) -> bool:
        return any(allowed is None or node_id in allowed.nodes for allowed in self._known)

    def relaxations(self) -> list[str]:
        terms = self._terms()
        return [] if self._asks_nothing(terms) else self.eligibility.relaxations(terms)
