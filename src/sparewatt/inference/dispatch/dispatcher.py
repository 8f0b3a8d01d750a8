"""All running jobs of a gateway, and the ring of explanations of the last ones."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from sparewatt.core.clock import Clock
from sparewatt.core.deadlines import Deadlines
from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import MATCHES_KEPT
from sparewatt.inference.dispatch.choosing import match_through
from sparewatt.inference.dispatch.keeping import ToStore
from sparewatt.inference.dispatch.model import DispatchRules, Gate, Job, MatchRecord, Sink
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.dispatch.resume import Able
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
        self.deadlines = Deadlines(clock=clock)
        """Of all that runs."""
        self._running: set[JobRun] = set()
        self._records: OrderedDict[MatchId, MatchRecord] = OrderedDict()
        self.to_store = ToStore()
        self.prefixes = PrefixMemory()
        self._tokens_done = 0
        self.watch: Callable[[MatchRecord], None] = lambda _record: None
        """Hears of a job when it is under way and when it is over."""
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
            deadlines=self.deadlines,
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
        return self._records.get(match_id)

    def last_records(self, count: int) -> Iterator[MatchRecord]:
        """The latest first."""
        return islice(reversed(self._records.values()), count)

    def _over(self, run: JobRun) -> None:
        self._running.discard(run)
        self._tokens_done += run.tokens
        self.watch(run.record)
        self.to_store.offer(run.record)

    def _keep(self, record: MatchRecord) -> None:
        self._records[record.id] = record
        while len(self._records) > MATCHES_KEPT:
            self._records.popitem(last=False)
