"""Which nodes may serve a job: its policy, its price cap, the capabilities it needs and its payer decide.

A policy looks at what nodes report, which changes seldom, while jobs come by the thousand. So each node's verdict is
cached until it reports something new, and the list of allowed nodes is rebuilt at most twice a second, or when a node
joined or left. The node that the matcher then picks is checked once more (`PolicyGate.admits`) against its latest
report, so a cached list never lets a job through to a node that is no longer eligible.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import POLICIES_COMPILED_MAX
from sparewatt.inference.capabilities import (
    NOTHING_REQUIRED,
    CapabilityCheck,
    RequiredCapabilities,
    capabilities_of,
    is_able,
    reported_by,
)
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.model import AllowedNodes
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import FRESH_S, CachedFacts, PolicyVerdicts, cached_facts, facts_with
from sparewatt.policy.check import FACT_OF, CompiledPolicy, FieldCheck, NodeFacts, compile_policy
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.formatter import explain_relaxation
from sparewatt.policy.model import ANY, MaxPrice, Policy
from sparewatt.policy.relaxation import relaxations
from sparewatt.protocol.link.node_report import ModelReport

RELAXATIONS_NODES_MAX = 1_000
"""Nodes looked at for what would help a request that found nobody: about 20 ms, which others wait for."""

VERDICTS_KEPT_MAX, VERDICTS_IDLE_MAX = 1_000_000, 20_000
"""Verdicts of all policies on all nodes (about 200 bytes each): who sends ever new policies fills no memory. Beyond the
smaller number, policies that nobody used for a while go."""
IDLE_S = 60.0

USUAL_PRICE = "usual_price"
"""The filter of the default price cap (`price_caps.py`): nodes dearer than what was held for a job that names none."""
_NO_VERSION = -2
"""Equal to no version of a model's columns, nor to -1, which stands for a model without nodes."""
_ALL_NODES: Sequence[AllowedNodes | None] = (None,)
_NO_NODES: Sequence[AllowedNodes | None] = (AllowedNodes(),)


class EligibilityTerms(NamedTuple):
    """What a list of allowed nodes depends on: the key of the cache."""

    policy: Policy
    default_cap: MaxPrice | None
    """The most that is paid in the directions for which the policy names no price."""
    model: ModelId
    needs: RequiredCapabilities = NOTHING_REQUIRED

    @property
    def is_live(self) -> bool:
        """Whether it looks at something that changes without a report."""
        return self.policy.max_ttft_ms is not None

    def checks(self) -> CompiledPolicy:
        able = CapabilityCheck(declared=self.needs.declared)
        checks: list[FieldCheck] = [(name, needed, able, capabilities_of) for name, needed in self.needs.filters()]
        checks += compile_policy(self.policy).checks
        if self.default_cap is not None:
            checks.append((USUAL_PRICE, self.default_cap, FIELDS["max_price"], FACT_OF["max_price"]))
        return CompiledPolicy(tuple(checks))

    def with_default_cap(self) -> Policy:
        """The policy with the default price cap written out, so that relaxations can name a higher price."""
        if self.default_cap is None:
            return self.policy
        named = self.policy.max_price or MaxPrice()
        prompt = self.default_cap.prompt if named.prompt is None else named.prompt
        completion = self.default_cap.completion if named.completion is None else named.completion
        return replace(self.policy, max_price=MaxPrice(prompt, completion))


def exceeds(prices: tuple[int, int], cap: MaxPrice) -> bool:
    """Whether the price of a prompt or of a completion is above the cap."""
    return not FIELDS["max_price"].admits(cap, prices)


def prices_of(report: ModelReport) -> tuple[int, int]:
    return report.prompt_price_nano, report.completion_price_nano


class HighestPrices(NamedTuple):
    """The highest prices of a model, and the version of its columns that they were read from."""

    prices: tuple[int, int]
    version: int
    read_at_s: float


class UniformCapability(NamedTuple):
    """Whether all nodes of a model have some capabilities, and what that was read from."""

    holds: bool
    columns: NodeColumns
    membership_version: int
    version: int
    read_at_s: float

    def is_stale(self, columns: NodeColumns, now_s: float) -> bool:
        if columns is not self.columns or columns.membership_version != self.membership_version:
            return True
        return columns.version != self.version and now_s - self.read_at_s >= FRESH_S


class Eligibility:
    """Caches facts, verdicts and lists for all policies. Bounded: the least recently used policies go first."""

    def __init__(self, table: NodeTable, *, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._verdicts: OrderedDict[EligibilityTerms, PolicyVerdicts] = OrderedDict()
        self._verdict_count = 0
        self._facts: dict[ModelId, dict[NodeId, CachedFacts]] = {}
        self._highest: dict[ModelId, HighestPrices] = {}
        self._uniform: dict[tuple[ModelId, RequiredCapabilities], UniformCapability] = {}
        self._gates: dict[
            tuple[Policy | None, ModelId, AccountId | None, MaxPrice | None, RequiredCapabilities], PolicyGate
        ] = {}
        """One for all jobs that are alike."""

    def gate(
        self,
        policy: Policy,
        model: ModelId,
        *,
        payer: AccountId | None = None,
        default_cap: MaxPrice | None = None,
        needs: RequiredCapabilities = NOTHING_REQUIRED,
    ) -> PolicyGate | None:
        """The conditions of a job; None if every node may serve it, wherever it is.

        `payer`: an account whose own nodes may not serve it. `default_cap`: the most that is paid where the policy
        names no price. `needs`: what a node's model must be able to do.
        """
        key = (None if policy is ANY else policy, model, payer, default_cap, needs)  # hashing a policy takes a while
        gate = self._gates.get(key)
        if gate is not None:
            return gate
        checks = compile_policy(policy) if policy is not ANY else None
        checks = checks if checks is not None and checks.checks else None
        is_ranked = policy.order is not None or policy.near is not None
        if payer is None and default_cap is None and checks is None and not is_ranked and not needs.can:
            return None
        if len(self._gates) >= POLICIES_COMPILED_MAX:
            self._gates.clear()
        gate = self._gates[key] = PolicyGate(self, policy, checks, model, payer, default_cap, needs)
        return gate

    def stages(self, terms: EligibilityTerms) -> Sequence[AllowedNodes | None]:
        """First the nodes that the policy's order names, one after the other; then all that it allows."""
        columns = self._table.columns_of(terms.model)
        if columns is None:
            return _NO_NODES
        cached = self._verdicts.get(terms)
        if cached is None:
            cached = self._verdicts[terms] = PolicyVerdicts(terms.checks())
        self._verdicts.move_to_end(terms)
        now_s = cached.used_at_s = self._clock.now_s()
        if cached.is_stale(columns, now_s, is_live=terms.is_live):
            before = len(cached.verdicts)
            cached.rebuild(self.facts(terms.model), columns, terms.policy.order or (), now_s=now_s)
            self._verdict_count += len(cached.verdicts) - before
            self._evict()
        return cached.stages

    def _evict(self) -> None:
        """Drop the least recently used policies beyond the bounds, but never the latest, which is in use."""
        while len(self._verdicts) > 1 and (
            len(self._verdicts) > POLICIES_COMPILED_MAX or self._verdict_count > VERDICTS_KEPT_MAX
        ):
            _, evicted = self._verdicts.popitem(last=False)
            self._verdict_count -= len(evicted.verdicts)

    def now_s(self) -> float:
        return self._clock.now_s()

    def any_exceeds(self, cap: MaxPrice, model: ModelId) -> bool:
        """Whether any node is dearer than the cap, as of at most FRESH_S ago."""
        now_s, highest = self._clock.now_s(), self._highest.get(model)
        if highest is None or now_s - highest.read_at_s >= FRESH_S:
            if len(self._highest) >= POLICIES_COMPILED_MAX:
                self._highest.clear()
            highest = HighestPrices(self._table.dearest_price(model), self.version(model), now_s)
            self._highest[model] = highest
        return exceeds(highest.prices, cap)

    def all_are_able(self, needs: RequiredCapabilities, model: ModelId) -> bool:
        """Whether every node of the model has these capabilities, as of at most FRESH_S ago."""
        columns, now_s = self._table.columns_of(model), self._clock.now_s()
        if columns is None:
            return True
        cached = self._uniform.get((model, needs))
        if cached is None or cached.is_stale(columns, now_s):
            if len(self._uniform) >= POLICIES_COMPILED_MAX:
                self._uniform.clear()
            holds = all(is_able(needs, self._declared_by(node_id, model)) for node_id in columns.nodes)
            cached = UniformCapability(holds, columns, columns.membership_version, columns.version, now_s)
            self._uniform[model, needs] = cached
        return cached.holds

    def is_read_from(
        self, version: int, *, default_cap: MaxPrice | None, needs: RequiredCapabilities, model: ModelId
    ) -> bool:
        """Whether `any_exceeds` and `all_are_able` answered from this version of the model's columns."""
        highest, uniform = self._highest.get(model), self._uniform.get((model, needs))
        has_prices = default_cap is None or (highest is not None and highest.version == version)
        return has_prices and (not needs.can or (uniform is not None and uniform.version == version))

    def is_current(self, terms: EligibilityTerms) -> bool:
        """Whether the list for these terms was built from all reports until now."""
        cached, columns = self._verdicts.get(terms), self._table.columns_of(terms.model)
        return cached is not None and columns is not None and cached.is_current(columns)

    def version(self, model: ModelId) -> int:
        """Changes when a node joins a model, leaves it or reports something new; -1 without nodes."""
        columns = self._table.columns_of(model)
        return -1 if columns is None else columns.version

    def is_counted(self, node_id: NodeId, model: ModelId) -> bool:
        """Whether `any_exceeds` and `all_are_able` look at this node: it is connected and measured."""
        row = self._table.get(node_id)
        position = row.positions.get(model) if row is not None else None
        return row is not None and position is not None and row.connected and position.figures.is_measured

    def _declared_by(self, node_id: NodeId, model: ModelId) -> Collection[str] | None:
        row = self._table.get(node_id)
        report = row.models.get(model) if row is not None else None
        return reported_by(row.specs, report) if row is not None and report is not None else None

    def refuses(self, node_id: NodeId, terms: EligibilityTerms, checks: CompiledPolicy | None) -> bool:
        """Check one node by its latest report. If it fails, the cached lists are rebuilt before their next use."""
        row = self._table.get(node_id)
        report = row.models.get(terms.model) if row is not None else None
        if row is None or report is None:
            return True
        is_refused = terms.default_cap is not None and exceeds(prices_of(report), terms.default_cap)
        is_refused = is_refused or not is_able(terms.needs, reported_by(row.specs, report))
        if checks is not None and not is_refused:
            is_refused = checks.first_mismatch(self._latest_facts(row, terms)) is not None
        if is_refused:
            self._invalidate(node_id, terms)
        return is_refused

    def _latest_facts(self, row: NodeRow, terms: EligibilityTerms) -> NodeFacts:
        cached = self._facts.get(terms.model, {}).get(row.id)
        if cached is not None and cached.holds_for(row, drift_s=0.0 if terms.is_live else row.rtt_s + cached.rtt_s):
            return cached.facts
        return facts_with(row, row.models[terms.model])

    def _invalidate(self, node_id: NodeId, terms: EligibilityTerms) -> None:
        self._highest.pop(terms.model, None)
        self._facts.get(terms.model, {}).pop(node_id, None)
        self._uniform.pop((terms.model, terms.needs), None)
        for default_cap, needs in product((terms.default_cap, None), (terms.needs, NOTHING_REQUIRED)):
            key = terms._replace(default_cap=default_cap, needs=needs)
            if key in self._verdicts:
                self._verdicts[key].built_at_s = None

    def relaxations(self, terms: EligibilityTerms) -> list[str]:
        """What would make a node eligible, in words. Computed once per list: failing clients retry often."""
        cached = self._verdicts.get(terms)
        if cached is not None and cached.hints is not None:
            return list(cached.hints)
        facts = [fact for fact in self._facts_of_connected(terms.model) if is_able(terms.needs, fact.capabilities)]
        nodes = [[fact] for fact in facts[:RELAXATIONS_NODES_MAX]]
        is_part = len(facts) > len(nodes)
        hints = [explain_relaxation(found, is_part=is_part) for found in relaxations(terms.with_default_cap(), nodes)]
        if cached is not None:
            cached.hints = hints
        return list(hints)

    def _facts_of_connected(self, model: ModelId) -> list[NodeFacts]:
        """Without nodes that are away: they would not serve, whatever the policy."""
        self.facts(model)
        found = self._facts.get(model, {})
        return [cached.facts for node_id, cached in found.items() if self._is_connected(node_id)]

    def _is_connected(self, node_id: NodeId) -> bool:
        row = self._table.get(node_id)
        return row is not None and row.connected

    def forget_absent_models(self) -> None:
        """Drop what is cached of models that no node has any more: facts and lists refer to reports and columns."""
        has_model = self._table.has_model
        self._facts = {model: facts for model, facts in self._facts.items() if has_model(model)}
        self._highest = {model: prices for model, prices in self._highest.items() if has_model(model)}
        self._uniform = {key: uniform for key, uniform in self._uniform.items() if has_model(key[0])}
        for terms in [terms for terms in self._verdicts if not has_model(terms.model)]:
            self._verdict_count -= len(self._verdicts.pop(terms).verdicts)

    def forget_idle(self) -> None:
        """Drop lists that nobody used for a while, the longest unused first, while there are many."""
        before_s = self._clock.now_s() - IDLE_S
        self._gates = {key: gate for key, gate in self._gates.items() if not gate.is_idle(before_s)}
        while self._verdict_count > VERDICTS_IDLE_MAX:
            terms, oldest = next(iter(self._verdicts.items()))
            if oldest.used_at_s >= before_s:
                return
            del self._verdicts[terms]
            self._verdict_count -= len(oldest.verdicts)

    def nodes_of(self, account: AccountId) -> Collection[NodeId]:
        return self._table.nodes_of(account)

    def facts(self, model: ModelId) -> list[NodeFacts]:
        """The facts of every node that has the model. Shared by all policies: building them takes longest."""
        columns, before = self._table.columns_of(model), self._facts.pop(model, {})
        if columns is None:
            return []
        rows = [row for node_id in columns.nodes if (row := self._table.get(node_id)) is not None]
        found = self._facts[model] = {row.id: cached_facts(row, model, before) for row in rows}
        return [cached.facts for cached in found.values()]


@dataclass(slots=True)
class PolicyGate:
    """The conditions that a job puts on nodes, shared by all jobs that are alike. Implements dispatch's Gate."""

    eligibility: Eligibility
    policy: Policy
    checks: CompiledPolicy | None
    model: ModelId
    payer: AccountId | None = None
    default_cap: MaxPrice | None = None
    needs: RequiredCapabilities = NOTHING_REQUIRED

    _stages: Sequence[AllowedNodes | None] = _ALL_NODES
    """Cached until `_stages_until_s`, while the model's columns have `_stages_version`."""
    _stages_until_s: float = 0.0
    _stages_version: int = _NO_VERSION
    _is_exact: bool = False
    """Whether `_stages` took in every report of that version: then `admits` has nothing to add for its nodes."""

    def stages(self) -> Sequence[AllowedNodes | None]:
        """May be FRESH_S old: the node that is picked is checked again by `admits`."""
        now_s, version = self.eligibility.now_s(), self.eligibility.version(self.model)
        if now_s < self._stages_until_s and version == self._stages_version:
            return self._stages
        terms = self._effective_terms()
        is_open = self._is_open(terms)
        self._stages = _ALL_NODES if is_open else self.eligibility.stages(terms)
        if terms.is_live:
            self._reset()
            return self._stages
        self._stages_until_s, self._stages_version = now_s + FRESH_S, version
        is_exact = self.eligibility.is_read_from(
            version, default_cap=self.default_cap, needs=self.needs, model=self.model
        )
        self._is_exact = is_exact and (is_open or (self.checks is None and self.eligibility.is_current(terms)))
        return self._stages

    def is_idle(self, before_s: float) -> bool:
        """Whether its list was not looked at since. Who holds it may go on using it."""
        return self._stages_until_s < before_s

    def _reset(self) -> None:
        self._stages_until_s, self._stages_version, self._is_exact = 0.0, _NO_VERSION, False

    def _effective_terms(self) -> EligibilityTerms:
        """Without conditions that all nodes of the model meet, as nearly always: most lists are then the same one."""
        cap = self.default_cap
        cap = cap if cap is not None and self.eligibility.any_exceeds(cap, self.model) else None
        are_able = not self.needs.can or self.eligibility.all_are_able(self.needs, self.model)
        return EligibilityTerms(self.policy, cap, self.model, NOTHING_REQUIRED if are_able else self.needs)

    def _is_open(self, terms: EligibilityTerms) -> bool:
        is_unchecked = self.checks is None and terms.default_cap is None and not terms.needs.can
        return is_unchecked and self.policy.order is None

    @property
    def near(self) -> str | None:
        return self.policy.near

    def payer_nodes(self) -> Collection[NodeId]:
        """The payer's own nodes, which may not serve a job that free credits pay for."""
        return self.eligibility.nodes_of(self.payer) if self.payer is not None else ()

    def admits(self, node_id: NodeId) -> bool:
        """Check one node by its latest report, unless the cached list is known to be exact for it."""
        if node_id in self.payer_nodes():
            return False
        is_exact = self._is_exact and self._stages_version == self.eligibility.version(self.model)
        if is_exact and self._allows(node_id) and self.eligibility.is_counted(node_id, self.model):
            return True
        terms = EligibilityTerms(self.policy, self.default_cap, self.model, self.needs)
        is_refused = self.eligibility.refuses(node_id, terms, self.checks)
        if is_refused:
            self._reset()
        return not is_refused

    def _allows(self, node_id: NodeId) -> bool:
        return any(allowed is None or node_id in allowed.nodes for allowed in self._stages)

    def relaxations(self) -> list[str]:
        terms = self._effective_terms()
        return [] if self._is_open(terms) else self.eligibility.relaxations(terms)
