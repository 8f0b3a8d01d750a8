"""What was counted of all finished jobs since the process started, by model. Nothing per token.

A model has a line of its own only if some node serves it, and only so many have: names come from strangers. The others
share one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.telemetry.metrics.histogram import CANDIDATES, LONG_S, MATCH_S, TIMES_S, TOKEN_S, Histogram
from sparewatt.telemetry.outcomes import ENDS

OTHER = "other"
"""The label of models that have no line of their own; one that is really called so is counted with them."""


class ModelTotals:
    __slots__ = ("completion_tokens", "duration", "ends", "first_token", "per_token", "prompt_tokens")

    def __init__(self) -> None:
        self.ends = dict.fromkeys(ENDS, 0)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.first_token = Histogram(TIMES_S)
        self.per_token = Histogram(TOKEN_S)
        self.duration = Histogram(LONG_S)

    def add(self, other: ModelTotals) -> None:
        for end, count in other.ends.items():
            self.ends[end] += count
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.first_token.add(other.first_token)
        self.per_token.add(other.per_token)
        self.duration.add(other.duration)


class JobTotals:
    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served = is_served
        self.models: dict[str, ModelTotals] = {}
        self.match = Histogram(MATCH_S)
        self.candidates = Histogram(CANDIDATES)
        self.cascades: Counter[str] = Counter()
        """Attempts that ended without the answer, by reason."""
        self.node_tokens: dict[NodeId, int] = {}
        """By node; as many as the table of nodes ever has."""
        self.seams = 0
        self.queue_wait = Histogram(TIMES_S)

    def model(self, name: str) -> ModelTotals:
        found = self.models.get(name)
        if found is not None:
            return found
        has_line = len(self.models) < METRICS_MODELS_MAX and self._is_served(name)
        return self.models.setdefault(name if has_line else OTHER, ModelTotals())

    def tidy(self) -> None:
        """Make room, where it is half gone: models that nobody serves any more are counted with the others."""
        if len(self.models) <= METRICS_MODELS_MAX // 2:
            return
        gone = [model for model in self.models if model != OTHER and not self._is_served(model)]
        for model in gone:
            self.models.setdefault(OTHER, ModelTotals()).add(self.models.pop(model))
