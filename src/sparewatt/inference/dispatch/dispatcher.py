"""All running jobs of a gateway, and the ring of explanations of the last ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.deadlines import Deadlines
from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import JOBS_UNSETTLED_MAX
from sparewatt.inference.dispatch.attempt import CLOCK_SLACK_S
from sparewatt.inference.dispatch.choosing import match_through
from sparewatt.inference.dispatch.keeping import ToStore
from sparewatt.inference.dispatch.model import DispatchRules, Gate, Job, MatchRecord, Sink
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.dispatch.resume import Able
from sparewatt.inference.dispatch.ring import MatchRing
from sparewatt.inference.dispatch.run import Desk, JobRun
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
        self._health = health
        self._rules = rules
        self._seed = seed
        self._clock = clock
        self.deadlines = Deadlines(clock=clock)
        """Of all attempts."""
        self._running: dict[JobRun, None] = {}
        """The longest under way first."""
        self._alarm: Timer | None = None
        """Rings when the time of the longest is up."""
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
        self._desk = Desk(
            table=table,
            links=links,
            health=health,
            rules=rules,
            seed=seed,
            clock=clock,
            deadlines=self.deadlines,
            prefixes=self.prefixes,
            able=Able(table, clock=clock),
            on_over=self._over,
        )

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
        run = JobRun(job, sink, policy, self._desk)
        self._running[run] = None
        if self._alarm is None:
            self._alarm = self._clock.call_later(self._rules.job_s, self._end_overdue)
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
        self._running.pop(run, None)
        if not self._running and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for attempt in run.record.attempts:
            self._tokens_done += attempt.tokens
        self._unsettled.append(run.record)
        if len(self._unsettled) >= JOBS_UNSETTLED_MAX:
            self.settle()

    def _end_overdue(self) -> None:
        """All jobs have the same time, so the longest under way is the next whose time is up: one alarm does."""
        self._alarm = None
        now_s = self._clock.now_s()
        while self._running:
            run = next(iter(self._running))
            if run.due_s > now_s + CLOCK_SLACK_S:
                self._alarm = self._clock.call_later(run.due_s - now_s, self._end_overdue)
                return
            run.run_out_of_time()
            self._running.pop(run, None)

    def _keep(self, record: MatchRecord) -> None:
        self._ring.add(record)


def unwatched(_: object) -> None:
    """While nobody wants to hear."""
