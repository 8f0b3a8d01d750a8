"""Node selection: runs the matcher for every stage of a job's gate, among the nodes that were not tried yet.

It also turns a decision without candidates into an error for the client.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    FirstTokenTimeout,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    NoEligibleNode,
    SparewattError,
)
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.plural import pluralize
from sparewatt.inference.capabilities import unable_error
from sparewatt.inference.dispatch.failover import FailoverGate
from sparewatt.inference.dispatch.failure_reasons import context_too_long
from sparewatt.inference.dispatch.model import AttemptRecord, Gate, Job, Outcome
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.columns import Standing
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, Candidate, Decision, MatchContext, MatchJob, Rejection
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.trials import match_fairly
from sparewatt.policy.parser import SUFFIX_SORTS

RETRY_AFTER_S = 2.0
_MAY_PASS = frozenset({Rejection.OFFLINE, Rejection.DRAINING, Rejection.NOT_MEASURED, Rejection.FULL})
"""Rejections that pass with time: the client should retry."""


class NodeSelector:
    """One per job; it remembers which nodes were tried."""

    __slots__ = ("_clock", "_health", "_last", "_prefixes", "_ranking", "_seed", "_table", "late_nodes", "tried")

    def __init__(
        self,
        *,
        table: NodeTable,
        ranking: Ranking,
        health: HealthRules,
        seed: int,
        clock: Clock,
        prefixes: PrefixIndex,
    ) -> None:
        self._table = table
        self._ranking = ranking
        self._health = health
        self._seed = seed
        self._clock = clock
        self._prefixes = prefixes
        self._last: Decision | None = None
        self.tried: set[NodeId] = set()
        self.late_nodes: dict[NodeId, float] = {}
        """Nodes that refused because they would be later than promised, and the job's cost there by their own word.
        One of them gets it if no other node can, or none is better."""

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """The candidates of the last choice, best first."""
        return () if self._last is None else self._last.ranked

    def decide(self, job: Job) -> Decision:
        return self._decide(job, job.gate)

    def best(self, job: Job) -> Candidate | None:
        """The best untried node, or one that refused a promise if that is still better: nothing is promised then."""
        found = self._best(job)
        late = min(self.late_nodes, key=lambda node: self.late_nodes[node], default=None)
        if late is not None and (found is None or self.late_nodes[late] < found.cost):
            self.tried.discard(late)
            found = self._best(job)
        return found

    def best_of_others(self, job: Job, owners: Collection[AccountId]) -> Candidate | None:
        """The best untried node of none of these owners."""
        tried = self.tried
        self.tried = tried.union(*(self._table.nodes_of(owner) for owner in owners))
        try:
            return self._best(job)
        finally:
            self.tried = tried

    def next_open(self, job: Job) -> Candidate | None:
        """The best untried node, if its breaker lets the job through. What was last ranked stays."""
        last = self._last
        found = self._best(job)
        self._last = last
        is_shut = found is not None and self._table.is_shut(found.node_id, job.match.model, now_s=self._clock.now_s())
        return None if is_shut else found

    def note_late(self, candidate: Candidate, *, stated_ttft_s: float) -> None:
        later_s = max(0.0, stated_ttft_s - candidate.predicted_ttft_s) if stated_ttft_s else math.inf
        self.late_nodes[candidate.node_id] = candidate.cost + later_s

    def may_recover(self, job: Job) -> bool:
        """Whether a node that could continue the job is only busy, or offline for a moment."""
        return isinstance(job.gate, FailoverGate) and job.gate.may_recover(self.tried)

    def _best(self, job: Job) -> Candidate | None:
        return self._best_for_failover(job, job.gate) if isinstance(job.gate, FailoverGate) else self.decide(job).best

    def _best_for_failover(self, job: Job, gate: FailoverGate) -> Candidate | None:
        """Usually one of the best candidates can continue the job; all nodes are filtered only if none of them can."""
        found = self._decide(job, gate.inner).ranked
        best = next((candidate for candidate in found if gate.can_continue(candidate.node_id)), None)
        if best is None and (gate.inner is not None or len(found) >= CANDIDATES_KEPT):
            best = self.decide(job).best
        return best

    def _decide(self, job: Job, gate: Gate | None) -> Decision:
        now_s = self._clock.now_s()
        prefix_tokens = self._prefixes.tokens_by_node(job.prefix, now_s=now_s) if job.prefix else None
        least = Standing.SUSPENDED if job.is_check else Standing.WAITING
        context = MatchContext(now_s, self._health, self.tried, None, (), prefix_tokens, least)
        self._last = match_through(gate, job.match, self._table, context, ranking=self._ranking, seed=self._seed)
        return self._last


def match_through(
    gate: Gate | None, job: MatchJob, table: NodeTable, context: MatchContext, *, ranking: Ranking, seed: int
) -> Decision:
    """The decision of the first stage that leaves a candidate; else that of the last."""
    if gate is None:
        return match_fairly(job, table, context, ranking=ranking, seed=seed)
    own = gate.payer_nodes()
    for allowed in gate.stages():
        restricted = context if allowed is None and not own else context.restricted_to(allowed, own)
        decision = match_fairly(job, table, restricted, ranking=ranking, seed=seed, near=gate.near)
        if decision.ranked_count:
            break
    return decision


def no_match_error(decision: Decision, table: NodeTable, gate: Gate | None = None) -> SparewattError:
    """Why no node can have the job: an unknown model, no capacity now, or the request itself."""
    model = decision.job.model
    reasons = {reason for reason, count in decision.rejected_by_reason.items() if count} - {Rejection.NO_MODEL}
    if not reasons and decision.rejected_by_policy:
        return unable_error(decision.rejected_by_policy, model) or _barred_error(decision, gate)
    if not reasons:
        known = table.model_ids()
        return ModelNotFound(model, nearest=nearest_models(model, known), why=wrong_suffix(model, known))
    if reasons & _MAY_PASS:
        stopped_by = ", ".join(sorted(reason.value for reason in reasons & _MAY_PASS))
        return NoCapacity(
            f"No node can take {model!r} right now (stopped by: {stopped_by}). Try again in a moment.",
            retry_after_s=RETRY_AFTER_S,
        )
    if Rejection.PROMPT_TOO_LONG in reasons:
        longest = max(row.models[model].context_length or 0 for row in table if model in row.models)
        return context_too_long(model, context_tokens=longest)
    return NoEligibleNode(f"No node that serves {model!r} has the memory for this job.")


def wrong_suffix(model: str, known: Collection[str]) -> str:
    """A hint for a model that is served, with an unknown suffix behind its name."""
    ends = [at for at, sign in enumerate(model) if sign in ":@" and model[:at] in known]
    if not ends:
        return ""
    name, suffix = model[: ends[-1]], model[ends[-1] :]
    sorts = ", ".join(f"':{sort}'" for sort in SUFFIX_SORTS)
    return f"{name!r} is, but {suffix[:40]!r} is no suffix: there are {sorts}, and '@' with a region, as in '@eu'."


def exhausted_error(attempts: Sequence[AttemptRecord]) -> SparewattError:
    """No attempt produced output."""
    story = "; ".join(f"{attempt.node_id[:10]}… {attempt.reason}" for attempt in attempts)
    message = f"No node could answer after {pluralize(len(attempts), 'attempt')}: {story}."
    if all(attempt.outcome is Outcome.REFUSED for attempt in attempts):
        return NoCapacity(message, retry_after_s=RETRY_AFTER_S)
    if all(attempt.outcome is Outcome.TIMED_OUT for attempt in attempts):
        return FirstTokenTimeout(message)
    return JobFailed(message)


def _barred_error(decision: Decision, gate: Gate | None) -> NoEligibleNode:
    """The policy rejected every node: by which fields, and what to relax."""
    fields = ", ".join(f"{field} ({count})" for field, count in decision.rejected_by_policy.items())
    nearest = gate.relaxations() if gate is not None else []
    hint = f" Nearest: {'; '.join(nearest)}." if nearest else ""
    return NoEligibleNode(f"Every node that serves {decision.job.model!r} is ruled out by: {fields}.{hint}")
