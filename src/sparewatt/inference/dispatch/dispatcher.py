"""All running jobs of a gateway: starts them, times them out, and keeps the history of the last matches.

The history is a ring in memory (`match_ring.py`). One match in a hundred and every failure also go to a bounded queue,
from which a background task stores their explanations.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol
from zlib import crc32

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.timer_queue import TimerQueue
from sparewatt.inference.dispatch.answer_observer import AnswerObserver
from sparewatt.inference.dispatch.attempt import CLOCK_SLACK_S
from sparewatt.inference.dispatch.attempt_factory import AttemptContext
from sparewatt.inference.dispatch.failover import ContinuationCandidates
from sparewatt.inference.dispatch.first_token_times import FirstTokenTimes
from sparewatt.inference.dispatch.hedging import HedgeBudget
from sparewatt.inference.dispatch.job_run import JobRun, RunContext
from sparewatt.inference.dispatch.match_ring import MatchRing
from sparewatt.inference.dispatch.model import DispatchRules, Gate, Job, MatchRecord, Outcome, Sink
from sparewatt.inference.dispatch.node_selection import match_through
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.model import Decision, MatchContext, MatchJob
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink

MATCHES_TO_STORE_MAX = 1_000
"""Explanations that wait for Postgres; when it is away for longer, the oldest are lost."""

ONE_IN = 100
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


def is_worth_storing(record: MatchRecord) -> bool:
    """By the id and not by chance, so that every process would choose the same."""
    return record.outcome in _FAILURES or crc32(record.id.encode()) % ONE_IN == 0


class ExplanationQueue:
    def __init__(self) -> None:
        self._waiting: deque[MatchRecord] = deque(maxlen=MATCHES_TO_STORE_MAX)
        self.dropped = 0
        """Records that were dropped because storing did not keep up."""

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, record: MatchRecord) -> None:
        if is_worth_storing(record):
            self.dropped += len(self._waiting) == MATCHES_TO_STORE_MAX
            self._waiting.append(record)  # the oldest goes

    def take(self, count: int) -> list[MatchRecord]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def return_unstored(self, records: Sequence[MatchRecord]) -> None:
        """They could not be stored: next time, as far as there is room."""
        room = MATCHES_TO_STORE_MAX - len(self._waiting)
        kept = records[len(records) - min(room, len(records)) :]
        self.dropped += len(records) - len(kept)
        self._waiting.extendleft(reversed(kept))


class JobObserver(Protocol):
    """Is called for every job, on the request path: it must be cheap."""

    def on_started(self, record: MatchRecord) -> None:
        """A job was dispatched and is not over."""
        ...

    def on_finished(self, record: MatchRecord) -> None:
        """A job has ended in any way. Called once."""
        ...


class Unobserved:
    """Implements JobObserver for tests and simulations that count nothing."""

    def on_started(self, record: MatchRecord) -> None: ...

    def on_finished(self, record: MatchRecord) -> None: ...


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
        observer: JobObserver | None = None,
        prefixes: PrefixIndex | None = None,
        is_leased: Callable[[NodeId, str], bool] = lambda _node_id, _order_id: False,
        answers: AnswerObserver | None = None,
    ) -> None:
        """`is_leased`: whether the chain has just given a node this lease, for which it may break off its answers.
        `answers`: is shown every whole answer."""
        self._table = table
        self._health = health
        self._rules = rules
        self._seed = seed
        self._clock = clock
        self._observer = observer or Unobserved()
        self.deadlines = TimerQueue(clock=clock)
        """The deadlines of all attempts."""
        self._running: dict[JobRun, None] = {}
        """In the order of their start."""
        self._timer: Timer | None = None
        """Fires when the time of the oldest is up."""
        self._ring = MatchRing()
        self.explanations = ExplanationQueue()
        """Records that wait to be stored."""
        self._tokens_done = 0
        self._context = RunContext(
            attempts=AttemptContext(table, links, rules, clock, self.deadlines, FirstTokenTimes(), is_leased),
            health=health,
            seed=seed,
            prefixes=prefixes if prefixes is not None else PrefixIndex(),
            continuations=ContinuationCandidates(table, clock=clock),
            hedges=HedgeBudget(),
            on_over=self._on_over,
            answers=answers,
        )

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def tokens(self) -> int:
        """All tokens that nodes have written so far."""
        return self._tokens_done + sum(run.tokens for run in self._running)

    def tokens_in_progress(self) -> tuple[Counter[str], Counter[NodeId]]:
        """Tokens of jobs that are not over, by model and by node."""
        models: Counter[str] = Counter()
        nodes: Counter[NodeId] = Counter()
        for run in self._running:
            for node_id, tokens in run.tokens_by_node():
                models[run.job.match.model] += tokens
                nodes[node_id] += tokens
        return models, nodes

    def dispatch(self, job: Job, sink: Sink, *, ranking: Ranking) -> JobRun:
        """Match and start a job. The sink may be called before this returns."""
        self._context.hedges.note_request()
        run = JobRun(job, sink, ranking, self._context)
        self._running[run] = None
        if self._timer is None:
            self._timer = self._clock.call_later(self._rules.job_s, self._end_overdue)
        self._ring.add(run.record)
        run.start()
        if run in self._running:
            self._observer.on_started(run.record)
        return run

    def abort_all(self, error: SparewattError) -> None:
        """End every running job. Each client gets the error, also in the middle of an answer."""
        for run in list(self._running):
            run.abort(error)

    def dry_run(self, job: MatchJob, *, ranking: Ranking, gate: Gate | None = None) -> Decision:
        """Match without sending anything."""
        at = MatchContext(now_s=self._clock.now_s(), rules=self._health)
        return match_through(gate, job, self._table, at, ranking=ranking, seed=self._seed)

    def record(self, match_id: MatchId) -> MatchRecord | None:
        return self._ring.get(match_id)

    def last_records(self, count: int) -> Iterator[MatchRecord]:
        """The latest first."""
        return islice(self._ring.latest(), count)

    def _on_over(self, run: JobRun) -> None:
        record = run.record
        self._running.pop(run, None)
        if not self._running and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for attempt in record.attempts:
            self._tokens_done += attempt.tokens
        self._ring.pack(record)
        self.explanations.offer(record)
        self._observer.on_finished(record)

    def _end_overdue(self) -> None:
        """All jobs have the same time limit, so the oldest is due next, and one timer is enough."""
        self._timer = None
        now_s = self._clock.now_s()
        while self._running:
            run = next(iter(self._running))
            if run.due_s > now_s + CLOCK_SLACK_S:
                self._timer = self._clock.call_later(run.due_s - now_s, self._end_overdue)
                return
            run.time_out()
            self._running.pop(run, None)
