"""Every finished job is counted here, once. History, metrics, live feed, pulse and reputation read what was counted.

One pass over a job's record, of under five microseconds; nothing per token.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from statistics import median

from sparewatt.core.clock import Clock
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.store.history import HistoryCounts
from sparewatt.telemetry.history.buckets import SPEED_UNIT, bucket_of, empty
from sparewatt.telemetry.history.interval import IntervalFigures
from sparewatt.telemetry.job_totals import JobTotals, ModelTotals
from sparewatt.telemetry.match_changes import MatchChanges
from sparewatt.telemetry.node_results import NodeResults
from sparewatt.telemetry.outcomes import cascade_reason, end_of, result_of

RECENT_MAX = 500
RECENT_S = 300.0
NO_BUCKET = -1
"""Of a time that nobody saw."""
_DONE, _CANCELLED = Outcome.DONE, Outcome.CANCELLED
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


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
        self.changes.add(record)

    def on_finished(self, record: MatchRecord) -> None:
        self.changes.add(record)
        end, tokens = end_of(record), self._count_attempts(record)
        totals = self.totals.model(record.decision.job.model)
        totals.ends[end] += 1
        self.totals.match.observe(record.match_s)
        self.totals.candidates.observe(record.decision.eligible_count)
        first_ms = record.first_token_ms
        if end == "done":
            _observe_times(totals, record, first_ms)
        if first_ms is not None:
            self._recent.append((self._clock.now_s(), first_ms))
        self._count_interval(record, end, tokens, first_ms)
        if record.stream_error_code is not None:
            self.count_error(record.stream_error_code)

    def count_error(self, code: str) -> None:
        """A request for an answer got this error instead."""
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

    def _count_attempts(self, record: MatchRecord) -> int:
        """What each attempt says about its node; returns the tokens that all of them wrote."""
        model, unix_s = self.totals.model(record.decision.job.model), self._clock.unix_s()
        tokens = prompt_tokens = 0
        for attempt in record.attempts:
            tokens += attempt.tokens
            self._count_node(attempt)
            result = result_of(attempt, record)
            if result is not None:
                self.results.add(attempt.node_id, result, unix_s=unix_s)
            if attempt.outcome is not _DONE and attempt.outcome is not _CANCELLED:
                self.totals.cascades[cascade_reason(attempt, result)] += 1
            delivered = attempt.delivered
            if delivered is not None:
                model.completion_tokens += attempt.tokens
                written = self.totals.node_tokens.get(attempt.node_id, 0)
                self.totals.node_tokens[attempt.node_id] = written + attempt.tokens
                prompt_tokens = prompt_tokens or delivered.prompt_tokens or record.decision.job.prompt_tokens
        model.prompt_tokens += prompt_tokens  # once, however many nodes read it
        self.totals.seams += sum(attempt.carried_tokens > 0 for attempt in record.attempts[1:])
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


def _observe_times(totals: ModelTotals, record: MatchRecord, first_ms: float | None) -> None:
    """Of an answer that was given. One that came in one piece has no first token that anybody saw."""
    last = record.attempts[-1] if record.attempts else None
    ended_ms = last.ended_ms if last is not None else None
    if last is None or ended_ms is None:
        return
    totals.duration.observe(ended_ms / 1000)
    if first_ms is None:
        return
    totals.first_token.observe(first_ms / 1000)
    tokens = last.tokens + last.carried_tokens
    if tokens > 1:
        totals.per_token.observe((ended_ms - first_ms) / 1000 / (tokens - 1))


def _buckets_of(record: MatchRecord, first_ms: float, tokens: int) -> tuple[int, int]:
    """Of the first token, and of how fast the others came."""
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
