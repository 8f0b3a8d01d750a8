"""Every finished job is counted here, once: a pass over its record of under five microseconds, nothing per token.

History, metrics, live feed, pulse and reputation are views of these counts; they count nothing themselves. Names of
models come from clients, so only models that some node serves, and only so many, have counts of their own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from statistics import median

from sparewatt.core.clock import Clock
from sparewatt.core.errors import NoEligibleNode
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.store.history import HistoryCounts
from sparewatt.telemetry.history.interval import SPEED_UNIT, IntervalFigures, NodeResults, bucket_of, empty
from sparewatt.telemetry.metrics.prometheus import Histogram
from sparewatt.trust.reputation import AttemptResult

ENDS = ("done", "failed", "rejected", "cancelled")
"""How a job can end for its client."""
OTHER = "other"
"""The label of models without counts of their own; a model that is really called so is counted with them."""
CHANGES_KEPT = 2_000
"""A reader that reads twice a second misses none up to 4,000 a second; what it missed is counted."""
RECENT_MAX = 500
RECENT_S = 300.0
NO_BUCKET = -1
"""Of a time that is not known."""

TIMES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Until a first token, or in the queue: from a local model to the moment at which clients give up."""
LONG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Of whole answers: up to the longest that a job may take."""
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
"""Between two tokens: from a thousand a second to one."""
MATCH_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)
"""Of a choice among nodes, which takes microseconds."""
CANDIDATES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 10_000.0)

_DONE, _CANCELLED = Outcome.DONE, Outcome.CANCELLED
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)
_JOB_TOO_LONG = "the job took longer"
_RESULTS_BY_CODE = {
    result.value: result
    for result in (
        AttemptResult.LINK_LOST,
        AttemptResult.BACKEND_UNREACHABLE,
        AttemptResult.BACKEND_BROKE,
        AttemptResult.BACKEND_TIMEOUT,
    )
}


def end_of(record: MatchRecord) -> str:
    """One of `ENDS`: done, cancelled by its client, rejected for its own fault, or failed by ours."""
    if record.outcome is _DONE:
        return "done"
    if record.outcome is _CANCELLED:
        return "cancelled"
    is_bad_request = record.error_status is not None and record.error_status < HTTPStatus.INTERNAL_SERVER_ERROR
    # Nodes exist, but the request's policy allows none of them. Where no node has the memory, the failure is ours.
    is_barred = record.error_code == NoEligibleNode.code and any(record.decision.rejected_by_policy.values())
    return "failed" if record.outcome in _FAILURES and not is_bad_request and not is_barred else "rejected"


def result_of(attempt: AttemptRecord, record: MatchRecord) -> AttemptResult | None:
    """What an attempt shows about its node.

    None if it shows nothing: refused in time, cancelled, a bad request, or longer than any job may take.
    """
    is_marked = attempt.delivered is not None and attempt.delivered.is_marked
    if attempt.outcome is _DONE and attempt.reason is None:  # nearly always
        return AttemptResult.OVERCLAIMED if is_marked else AttemptResult.DONE
    reason = attempt.reason or ""
    has_status = reason.startswith("status ")
    match attempt.outcome:
        case Outcome.DONE:
            return None if has_status else AttemptResult.DONE
        case Outcome.TIMED_OUT:
            return None if reason.startswith(_JOB_TOO_LONG) else AttemptResult.TIMED_OUT
        case Outcome.FAILED if has_status:
            return None if record.error_status in range(400, 500) else AttemptResult.BACKEND_ERROR
        case Outcome.FAILED:
            return _RESULTS_BY_CODE.get(reason.partition(":")[0], AttemptResult.PROTOCOL)
        case _:
            return None


def _cascade_reason(attempt: AttemptRecord, result: AttemptResult | None) -> str:
    """Why the job went on to another node: one of a few words of ours, never the node's own."""
    if attempt.outcome is Outcome.REFUSED:
        return "refused"
    return "other" if result is None or result is AttemptResult.DONE else result.value


@dataclass(slots=True)
class ModelTotals:
    """Of all finished jobs of one model since the process started."""

    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDS, 0))
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: Histogram = field(default_factory=partial(Histogram, TIMES_S))
    per_token: Histogram = field(default_factory=partial(Histogram, TOKEN_S))
    duration: Histogram = field(default_factory=partial(Histogram, LONG_S))

    def add(self, other: ModelTotals) -> None:
        for end, count in other.ends.items():
            self.ends[end] += count
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.first_token.add(other.first_token)
        self.per_token.add(other.per_token)
        self.duration.add(other.duration)

    def observe_times(self, record: MatchRecord, first_ms: float | None) -> None:
        """Of an answer that was given. One that was not streamed has no time of a first token."""
        last = record.attempts[-1] if record.attempts else None
        ended_ms = last.ended_ms if last is not None else None
        if last is None or ended_ms is None:
            return
        self.duration.observe(ended_ms / 1000)
        if first_ms is None:
            return
        self.first_token.observe(first_ms / 1000)
        tokens = last.tokens + last.carried_tokens
        if tokens > 1:
            self.per_token.observe((ended_ms - first_ms) / 1000 / (tokens - 1))


@dataclass(slots=True)
class JobTotals:
    """Of all finished jobs since the process started."""

    is_served: Callable[[str], bool]
    """Whether some node has a model of this name."""
    models: dict[str, ModelTotals] = field(default_factory=dict)
    match: Histogram = field(default_factory=partial(Histogram, MATCH_S))
    candidates: Histogram = field(default_factory=partial(Histogram, CANDIDATES))
    queue_wait: Histogram = field(default_factory=partial(Histogram, TIMES_S))
    cascades: Counter[str] = field(default_factory=Counter)
    """Attempts that ended without the answer, by reason."""
    node_tokens: dict[NodeId, int] = field(default_factory=dict)
    """As many nodes as the table ever has."""
    seams: int = 0

    def model(self, name: str) -> ModelTotals:
        totals = self.models.get(name)
        if totals is not None:
            return totals
        is_counted_alone = len(self.models) < METRICS_MODELS_MAX and self.is_served(name)
        return self.models.setdefault(name if is_counted_alone else OTHER, ModelTotals())

    def tidy(self) -> None:
        """Once half of the room is used, count models that no node serves any more with the others."""
        if len(self.models) <= METRICS_MODELS_MAX // 2:
            return
        for model in [model for model in self.models if model != OTHER and not self.is_served(model)]:
            self.models.setdefault(OTHER, ModelTotals()).add(self.models.pop(model))


class MatchChanges:
    """Matches that were made or ended lately, in order. Readers keep a cursor and poll; nothing is pushed to them.

    Only ids: records kept alive here would make every job allocate memory that is not in the processor's caches.
    """

    def __init__(self) -> None:
        self._last: deque[MatchId] = deque(maxlen=CHANGES_KEPT)
        self.cursor = 0
        """How many there have been."""

    def add(self, match_id: MatchId) -> None:
        self.cursor += 1
        self._last.append(match_id)

    def since(self, cursor: int) -> tuple[list[MatchId], int]:
        """Those after a cursor, the oldest first, and how many more are no longer stored."""
        count = self.cursor - cursor
        if count <= 0:
            return [], 0
        found = list(self._last)[-count:]
        return found, count - len(found)


class JobCounter:
    """Implements JobObserver and ErrorCounter."""

    def __init__(self, is_served: Callable[[str], bool], *, clock: Clock) -> None:
        """`is_served`: whether some node has a model of this name."""
        self._clock = clock
        self.totals = JobTotals(is_served)
        """Since the process started: for metrics and pulse."""
        self.interval = IntervalFigures()
        """Since they were last stored: for the history."""
        self.results = NodeResults()
        """Likewise, by node: for reputation."""
        self.changes = MatchChanges()
        """For the live feed."""
        self.errors: Counter[str] = Counter()
        """By code, since the start. Codes are our own words, and few."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)

    def on_started(self, record: MatchRecord) -> None:
        self.changes.add(record.id)

    def on_finished(self, record: MatchRecord) -> None:
        self.changes.add(record.id)
        totals = self.totals.model(record.decision.job.model)
        end, tokens = end_of(record), self._count_attempts(record, totals)
        totals.ends[end] += 1
        self.totals.match.observe(record.match_s)
        self.totals.candidates.observe(record.decision.eligible_count)
        first_ms = record.first_token_ms
        if end == "done":
            totals.observe_times(record, first_ms)
        if first_ms is not None:
            self._recent.append((self._clock.now_s(), first_ms))
        self._count_interval(record, end, tokens, first_ms)
        if record.stream_error_code is not None:
            self.count_error(record.stream_error_code)

    def count_error(self, code: str) -> None:
        """An inference request got this error instead of an answer."""
        self.errors[code] += 1
        figures = self.interval.at("error", code)
        if figures is not None:
            figures.jobs += 1

    def first_tokens(self) -> tuple[float | None, int]:
        """The median first-token time of the last minutes, in milliseconds, and of how many."""
        now_s = self._clock.now_s()
        while self._recent and now_s - self._recent[0][0] > RECENT_S:
            self._recent.popleft()
        return round(median(ms for _, ms in self._recent), 1) if self._recent else None, len(self._recent)

    def _count_attempts(self, record: MatchRecord, model: ModelTotals) -> int:
        """Count each attempt for its node; returns the tokens that all of them wrote."""
        totals, unix_s = self.totals, self._clock.unix_s()
        tokens = prompt_tokens = 0
        for attempt in record.attempts:
            tokens += attempt.tokens
            self._count_node(attempt)
            result = result_of(attempt, record)
            if result is not None:
                self.results.add(attempt.node_id, result, unix_s=unix_s)
            if attempt.outcome is not _DONE and attempt.outcome is not _CANCELLED:
                totals.cascades[_cascade_reason(attempt, result)] += 1
            delivered = attempt.delivered
            if delivered is not None:
                model.completion_tokens += attempt.tokens
                totals.node_tokens[attempt.node_id] = totals.node_tokens.get(attempt.node_id, 0) + attempt.tokens
                read = delivered.prompt_tokens if delivered.paid_prompt_tokens is None else delivered.paid_prompt_tokens
                prompt_tokens = prompt_tokens or read or record.decision.job.prompt_tokens
        model.prompt_tokens += prompt_tokens  # once, however many nodes read it
        totals.seams += sum(attempt.carried_tokens > 0 for attempt in record.attempts[1:])
        return tokens

    def _count_node(self, attempt: AttemptRecord) -> None:
        figures = self.interval.at("node", attempt.node_id)
        if figures is not None:
            figures.jobs += 1
            figures.tokens += attempt.tokens
            figures.failed += attempt.outcome in _FAILURES

    def _count_interval(self, record: MatchRecord, end: str, tokens: int, first_ms: float | None) -> None:
        first, speed = (NO_BUCKET, NO_BUCKET) if first_ms is None else _buckets_of(record, first_ms, tokens)
        _add_job(self.interval.network(), end, tokens, first=first, speed=speed)
        model = self.interval.at("model", record.decision.job.model) if record.attempts else None
        if model is not None:
            _add_job(model, end, tokens, first=first, speed=speed)


def _buckets_of(record: MatchRecord, first_ms: float, tokens: int) -> tuple[int, int]:
    """Of the first token's time, and of the speed of the others."""
    took_s = ((record.attempts[-1].ended_ms or 0.0) - first_ms) / 1000
    has_speed = tokens > 1 and took_s > 0
    return bucket_of(first_ms), bucket_of((tokens - 1) / took_s / SPEED_UNIT) if has_speed else NO_BUCKET


def _add_job(figures: HistoryCounts, end: str, tokens: int, *, first: int, speed: int) -> None:
    figures.jobs += 1
    figures.tokens += tokens
    figures.failed += end == "failed"
    figures.cancelled += end == "cancelled"
    if first != NO_BUCKET:
        figures.first_token = figures.first_token or empty()
        figures.first_token[first] += 1
    if speed != NO_BUCKET:
        figures.speed = figures.speed or empty()
        figures.speed[speed] += 1
