"""All running jobs of a gateway, and the ring of explanations of the last ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from sparewatt.core.clock import Clock
from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import JOBS_UNSETTLED_MAX
from sparewatt.inference.dispatch.choosing import match_through
from sparewatt.inference.dispatch.keeping import ToStore
from sparewatt.inference.dispatch.model import DispatchRules, Gate, Job, MatchRecord, Sink
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.dispatch.resume import Able
from sparewatt.inference.dispatch.ring import MatchRing
from sparewatt.inference.dispatch.run import JobRun
from sparewatt.inference.matcher.model import Decision, HealthRules, MatchJob
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink


class Dispatcher:
    def __init__(
        self,
        *,
        table: NodeTable,
        links: Mapping[NodeId, NodeLink],
        health: HealthRules,
        rules: DispatchRules,
        seed: int,
        clock: Clock,
    ) -> None:
        self._table = table
        self._links = links
        self._health = health
        self._rules = rules
        self._seed = seed
        self._clock = clock
        self._running: set[JobRun] = set()
        self._ring = MatchRing()
        self._unsettled: list[MatchRecord] = []
        """Of jobs that are over, and not looked at since."""
        self._to_store = ToStore()
        self.prefixes = PrefixMemory()
        self._tokens_done = 0
        self.watch: Callable[[MatchRecord], None] = unwatched
        """Hears of a job when it is under way."""
        self.on_over: Callable[[Sequence[MatchRecord]], None] = unwatched
        """Hears of jobs when they are over, of several at once (see `settle`)."""
        self._able = Able(table, clock=clock)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def tokens(self) -> int:
        """All that nodes have written so far, by count."""
        return self._tokens_done + sum(run.tokens for run in self._running)

    def being_written(self) -> tuple[Counter[str], Counter[NodeId]]:
        """Tokens of jobs that are not over, by model and by node."""
        models: Counter[str] = Counter()
        nodes: Counter[NodeId] = Counter()
        for run in self._running:
            for node_id, tokens in run.tokens_by_node():
                models[run.job.match.model] += tokens
                nodes[node_id] += tokens
        return models, nodes

    def dispatch(self, job: Job, sink: Sink, *, policy: Policy) -> JobRun:
        """Match and start a job. The sink hears of it at once or later, never twice."""
        run = JobRun(
            job,
            sink,
            table=self._table,
            links=self._links,
            policy=policy,
            health=self._health,
            rules=self._rules,
            seed=self._seed,
            clock=self._clock,
            prefixes=self.prefixes,
            able=self._able,
            on_over=self._over,
        )
        self._running.add(run)
        self._keep(run.record)
        run.start()
        if run in self._running:
            self.watch(run.record)
        return run

    def break_off(self, error: SparewattError) -> None:
        """End every job that still runs. Each client is told, also in the middle of an answer."""
        for run in list(self._running):
            run.break_off(error)

    def dry_run(self, job: MatchJob, *, policy: Policy, gate: Gate | None = None) -> Decision:
        """Who would serve it, without sending anything."""
        at = Situation(now_s=self._clock.now_s(), rules=self._health)
        return match_through(gate, job, self._table, at, policy=policy, seed=self._seed)

    def record(self, match_id: MatchId) -> MatchRecord | None:
        return self._ring.get(match_id)

    def last_records(self, count: int) -> Iterator[MatchRecord]:
        """The latest first."""
        return islice(self._ring.latest(), count)

    @property
    def to_store(self) -> ToStore:
        """Explanations that wait to be stored."""
        self.settle()
        return self._to_store

    def settle(self) -> None:
        """Do what remains to be done for jobs that are over: count them, choose which to store, pack them away.

        For several at a stretch that is half the work. Whoever reads a count that follows from it calls this first.
        """
        records, self._unsettled = self._unsettled, []
        if records:
            self._ring.pack(records)
            self._to_store.offer(records)
            self.on_over(records)

    def _over(self, run: JobRun) -> None:
        self._running.discard(run)
        for attempt in run.record.attempts:
            self._tokens_done += attempt.tokens
        self._unsettled.append(run.record)
        if len(self._unsettled) >= JOBS_UNSETTLED_MAX:
            self.settle()

    def _keep(self, record: MatchRecord) -> None:
        self._ring.add(record)


def unwatched(_: object) -> None:
    """While nobody wants to hear."""
