"""Whose turn is next at a job: the matcher's choice among those who have not been tried."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT
from sparewatt.inference.dispatch.choosing import match_through
from sparewatt.inference.dispatch.model import Gate, Job
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.dispatch.resume import ContinuingGate
from sparewatt.inference.matcher.model import Candidate, Decision, HealthRules
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable


class Finder:
    """One per job; it remembers who was tried."""

    __slots__ = ("_clock", "_health", "_last", "_policy", "_prefixes", "_seed", "_table", "late", "tried")

    def __init__(
        self,
        *,
        table: NodeTable,
        policy: Policy,
        health: HealthRules,
        seed: int,
        clock: Clock,
        prefixes: PrefixMemory,
    ) -> None:
        self._table = table
        self._policy = policy
        self._health = health
        self._seed = seed
        self._clock = clock
        self._prefixes = prefixes
        self._last: Decision | None = None
        self.tried: set[NodeId] = set()
        self.late: set[NodeId] = set()
        """Nodes that would not have kept what was promised; they may have the job if nobody else can."""

    @property
    def ranked(self) -> Sequence[Candidate]:
        """Among whom it looked last."""
        return () if self._last is None else self._last.ranked

    def decide(self, job: Job) -> Decision:
        return self._decide(job, job.gate)

    def best(self, job: Job) -> Candidate | None:
        """If nobody is left but nodes that would be later than promised: late is better than never, once."""
        found = self._best(job)
        if found is None and self.late:
            self.tried -= self.late
            found = self._best(job)
        return found

    def may_come(self, job: Job) -> bool:
        """Whether somebody who could go on with it is only busy, or away for a moment."""
        return isinstance(job.gate, ContinuingGate) and job.gate.may_come(self.tried)

    def _best(self, job: Job) -> Candidate | None:
        return self._best_able(job, job.gate) if isinstance(job.gate, ContinuingGate) else self.decide(job).best

    def _best_able(self, job: Job, gate: ContinuingGate) -> Candidate | None:
        """Where most nodes can go on, one of the best can: only if none of them can is everybody looked through."""
        found = self._decide(job, gate.inner).ranked
        best = next((candidate for candidate in found if gate.is_able(candidate.node_id)), None)
        if best is None and (gate.inner is not None or len(found) >= CANDIDATES_KEPT):
            best = self.decide(job).best
        return best

    def _decide(self, job: Job, gate: Gate | None) -> Decision:
        now_s = self._clock.now_s()
        held = self._prefixes.held(job.prefix, now_s=now_s) if job.prefix else None
        at = Situation(now_s, self._health, self.tried, None, (), held)
        self._last = match_through(gate, job.match, self._table, at, policy=self._policy, seed=self._seed)
        return self._last
