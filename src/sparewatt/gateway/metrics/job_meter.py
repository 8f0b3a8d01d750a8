"""What is counted of every job when it is over, by model. Under two microseconds; nothing per token.

A model has a line of its own only if some node serves it, and only so many have: names come from strangers. Of the rest
there is one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.gateway.history.tally import is_our_failure
from sparewatt.gateway.metrics.histogram import CANDIDATES, LONG_S, MATCH_S, TIMES_S, TOKEN_S, Histogram
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.inference.reputation import Result, result_of

OTHER = "other"
"""The label of models that have no line of their own; one that is really called so is counted with them."""
ENDS = ("done", "failed", "rejected", "cancelled")
_DONE, _CANCELLED = Outcome.DONE, Outcome.CANCELLED


class ModelMeter:
    __slots__ = ("completion_tokens", "duration", "ends", "first_token", "per_token", "prompt_tokens")

    def __init__(self) -> None:
        self.ends = dict.fromkeys(ENDS, 0)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.first_token = Histogram(TIMES_S)
        self.per_token = Histogram(TOKEN_S)
        self.duration = Histogram(LONG_S)

    def add(self, other: ModelMeter) -> None:
        for end, count in other.ends.items():
            self.ends[end] += count
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.first_token.add(other.first_token)
        self.per_token.add(other.per_token)
        self.duration.add(other.duration)


class JobMeter:
    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served = is_served
        self.models: dict[str, ModelMeter] = {}
        self.match = Histogram(MATCH_S)
        self.candidates = Histogram(CANDIDATES)
        self.cascades: Counter[str] = Counter()
        self.node_tokens: dict[NodeId, int] = {}
        """By node; as many as the table of nodes ever has."""
        self.seams = 0

    def note(self, record: MatchRecord) -> None:
        """A job is over. Written for the one that its first node did: nearly all of them."""
        decision, attempts = record.decision, record.attempts
        meter = self.models.get(decision.job.model) or self._meter(decision.job.model)
        self.match.observe(record.match_s)
        self.candidates.observe(decision.eligible)
        is_done = record.outcome is _DONE
        meter.ends["done" if is_done else end_of(record)] += 1
        if not attempts:
            return
        last = attempts[-1]
        if is_done and last.ended_ms is not None:
            _note_times(meter, record, last, last.ended_ms)
        if len(attempts) > 1 or last.outcome is not _DONE:
            self._note_broken(record)
        prompt_tokens = 0
        for attempt in attempts:
            seen, node_id = attempt.seen, attempt.node_id
            if seen is not None:
                meter.completion_tokens += attempt.tokens
                self.node_tokens[node_id] = self.node_tokens.get(node_id, 0) + attempt.tokens
                prompt_tokens = prompt_tokens or seen.prompt_tokens or decision.job.prompt_tokens
        meter.prompt_tokens += prompt_tokens  # once, however many nodes read it

    def _note_broken(self, record: MatchRecord) -> None:
        for attempt in record.attempts:
            if attempt.outcome is not _DONE and attempt.outcome is not _CANCELLED:
                self.cascades[reason_of(attempt, record)] += 1
        self.seams += sum(attempt.carried_tokens > 0 for attempt in islice(record.attempts, 1, None))

    def _meter(self, model: str) -> ModelMeter:
        has_line = len(self.models) < METRICS_MODELS_MAX and self._is_served(model)
        name = model if has_line else OTHER
        if name not in self.models:
            self.models[name] = ModelMeter()
        return self.models[name]

    def tidy(self) -> None:
        """Make room, where it is half gone: models that nobody serves any more are counted with the others."""
        if len(self.models) <= METRICS_MODELS_MAX // 2:
            return
        gone = [model for model in self.models if model != OTHER and not self._is_served(model)]
        for model in gone:
            self.models.setdefault(OTHER, ModelMeter()).add(self.models.pop(model))


def end_of(record: MatchRecord) -> str:
    """How a job ended that did not succeed: taken back, failed by us, or asked for what could not be."""
    if record.outcome is Outcome.CANCELLED:
        return "cancelled"
    return "failed" if is_our_failure(record) else "rejected"


def reason_of(attempt: AttemptRecord, record: MatchRecord) -> str:
    """One of a few words, never the node's own."""
    if attempt.outcome is Outcome.REFUSED:
        return "refused"
    result = result_of(attempt, record)
    return "other" if result is None or result is Result.DONE else result.value


def _note_times(meter: ModelMeter, record: MatchRecord, last: AttemptRecord, ended_ms: float) -> None:
    """Of what was answered. What came in one piece has no first token that anybody saw."""
    meter.duration.observe(ended_ms / 1000)
    if not record.streamed:
        return
    first_ms = record.attempts[0].first_token_ms or record.first_token_ms
    if first_ms is None:
        return
    meter.first_token.observe(first_ms / 1000)
    tokens = last.tokens + last.carried_tokens
    if tokens > 1:
        meter.per_token.observe((ended_ms - first_ms) / 1000 / (tokens - 1))
