"""From samples to verdicts: medians over the rounds, ratios within a round, and the goals for them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.gateway.sample import Sample
from bench.gateway.targets import DIRECT, LITE, NGINX, OURS, SGLANG

NOISE_MS_MAX = 0.3
"""If the p99 of the model server without a gateway is above this, the machine is too noisy to measure anything."""
OVERRUN_MS_MAX = 50.0
"""Nodes and model server delay the generator by a few milliseconds; more comes from other programs."""
MB = 1e6

Value = Callable[[Sample], float | None]
Verdict = Literal["met", "lost", "not measured"]


def is_disturbed(sample: Sample) -> bool:
    return sample.overrun_ms > OVERRUN_MS_MAX


def per_s(sample: Sample) -> float | None:
    return _load_number(sample, "per_s")


def cpu_us_per_request(sample: Sample) -> float | None:
    return _cpu_us_per(sample, "completed")


def cpu_us_per_token(sample: Sample) -> float | None:
    return _cpu_us_per(sample, "tokens")


def _cpu_us_per(sample: Sample, what: str) -> float | None:
    count = _load_number(sample, what)
    return 1e6 * sample.cpu_s / count if count and sample.cpu_s else None


def memory_mb(sample: Sample) -> float | None:
    return sample.memory_bytes / MB


def time_ms(series: str, percentile: str) -> Value:
    def value(sample: Sample) -> float | None:
        found = sample.load.get(series)
        return float(found[percentile]) if found else None

    return value


def _load_number(sample: Sample, name: str) -> float | None:
    found: Any = sample.load.get(name)
    return None if found is None else float(found)


whole_p50, whole_p99 = time_ms("latency_ms", "p50"), time_ms("latency_ms", "p99")


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of a run. Those with faults or disturbed by other programs count in no figure."""

    every: Sequence[Sample]

    def clean(self, scenario: str, target: str) -> dict[int, Sample]:
        """By round."""
        return {
            sample.round: sample
            for sample in self.every
            if (sample.scenario, sample.target) == (scenario, target) and not sample.faults and not is_disturbed(sample)
        }

    def faulty(self, target: str | None = None) -> list[Sample]:
        return [sample for sample in self.every if sample.faults and target in {None, sample.target}]

    def has(self, scenario: str, target: str) -> bool:
        return any((sample.scenario, sample.target) == (scenario, target) for sample in self.every)

    def answered(self, target: str) -> int:
        return sum(sample.load.get("completed", 0) for sample in self.every if sample.target == target)

    def each(self, scenario: str, target: str, value: Value) -> list[float]:
        found = [value(sample) for sample in self.clean(scenario, target).values()]
        return [one for one in found if one is not None]

    def median(self, scenario: str, target: str, value: Value) -> float | None:
        found = self.each(scenario, target, value)
        return statistics.median(found) if found else None

    def ratios(self, scenario: str, target: str, other: str, value: Value) -> list[float]:
        """Within each round, since noise of the machine affects both targets of a round."""
        return self._paired(scenario, target, other, value, lambda mine, its: mine / its if its else None)

    def excesses(self, scenario: str, target: str, other: str, value: Value) -> list[float]:
        return self._paired(scenario, target, other, value, lambda mine, its: mine - its)

    def _paired(
        self, scenario: str, target: str, other: str, value: Value, join: Callable[[float, float], float | None]
    ) -> list[float]:
        mine, others = self.clean(scenario, target), self.clean(scenario, other)
        pairs = [(value(mine[number]), value(others[number])) for number in mine if number in others]
        found = [join(one, two) for one, two in pairs if one is not None and two is not None]
        return [one for one in found if one is not None]


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    scenario: str
    limit: float
    is_least: bool
    """Whether the limit is a minimum; otherwise it is a maximum."""
    unit: str
    rounds: Callable[[Samples], list[float]]

    @property
    def in_words(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.limit:g} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class GoalResult:
    goal: Goal
    measured: float | None
    rounds: Sequence[float]
    verdict: Verdict


def _ratio(what: str, scenario: str, other: str, value: Value, limit: float, *, is_least: bool = False) -> Goal:
    title = f"{what}, against {other}"
    return Goal(title, scenario, limit, is_least, "times", lambda all_: all_.ratios(scenario, OURS, other, value))


def _added(what: str, value: Value, limit: float) -> Goal:
    return Goal(what, "L", limit, False, "ms", lambda all_: all_.excesses("L", OURS, DIRECT, value))


_N = "whole answers per second (N)"
_S1, _S3 = (f"processor time per streamed token ({scenario})" for scenario in ("S1", "S3"))
_BURST = "64 tokens at once"
GOALS = (
    _ratio(_N, "N", NGINX, per_s, 0.33, is_least=True),
    _ratio(_N, "N", SGLANG, per_s, 1.7, is_least=True),
    _ratio(_N, "N", LITE, per_s, 120, is_least=True),
    _ratio(_S3, "S3", NGINX, cpu_us_per_token, 1.25),
    _ratio(_S3, "S3", SGLANG, cpu_us_per_token, 0.9),
    _ratio(_S1, "S1", LITE, cpu_us_per_token, 0.05),
    _added("added at 100 requests/s (L), median", whole_p50, 0.9),
    _added("added at 100 requests/s (L), p99", whole_p99, 2.0),
    _ratio(_BURST, "burst", NGINX, whole_p50, 2.5),
    _ratio(_BURST, "burst", SGLANG, whole_p50, 0.4),
    Goal("memory of 1,000 open streams", "memory", 15, False, "MB", lambda all_: all_.each("memory", OURS, memory_mb)),
)


def judge(samples: Samples, goals: Sequence[Goal] = GOALS) -> list[GoalResult]:
    return [_judge(samples, goal) for goal in goals]


def _judge(samples: Samples, goal: Goal) -> GoalResult:
    """One fault of our gateway under a workload loses its goals, whatever other rounds measured."""
    found = goal.rounds(samples)
    measured = statistics.median(found) if found else None
    if any(sample.scenario == goal.scenario for sample in samples.faulty(OURS)):
        return GoalResult(goal, measured, found, "lost")
    if measured is None:
        return GoalResult(goal, None, (), "not measured")
    is_met = measured >= goal.limit if goal.is_least else measured <= goal.limit
    return GoalResult(goal, measured, found, "met" if is_met else "lost")


def why_noisy(samples: Samples) -> str | None:
    """Why no measurement counts; None if they do."""
    p99 = samples.median("L", DIRECT, whole_p99)
    if p99 is None:
        return "Noise cannot be judged: the target direct was not measured under L."
    if p99 > NOISE_MS_MAX:
        return f"The machine is too noisy: p99 of the model server itself is {p99:.2f} ms, {NOISE_MS_MAX} at most."
    return None
