"""Reputation: how reliable a node is and why it failed, from counts per day with exponential decay. Pure.

Finished and failed jobs are the successes s and failures f of a Beta(1 + s, 1 + f) distribution; a day's weight halves
every HALF_LIFE_DAYS. The score is its mean. Nodes are compared by the lower confidence bound (5 %), so a node with few
jobs does not rank high. The bound is Wilson's: it has a closed form, and one more failure never raises it, nor one more
success lowers it. (A series for the quantile is more exact, but a failure can raise it when there are few of them.)
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

HALF_LIFE_DAYS = 7.0
_Z = 1.6449
"""5 % of a normal distribution lie below -_Z."""


class AttemptResult(enum.StrEnum):
    """What an attempt shows about its node: success, or the cause of its failure."""

    DONE = "done"
    LINK_LOST = "link_lost"
    TIMED_OUT = "timed_out"
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_BROKE = "backend_broke"
    BACKEND_TIMEOUT = "backend_timeout"
    BACKEND_ERROR = "backend_error"
    PROTOCOL = "protocol"
    OVERCLAIMED = "overclaimed"
    """The answer came, and far more tokens were claimed than its text takes."""


@dataclass(frozen=True, slots=True)
class DayCount:
    """How often a node had one result on one day, and when last."""

    day: dt.date
    result: AttemptResult
    count: int
    last_unix_s: float


@dataclass(frozen=True, slots=True)
class FailureCause:
    result: AttemptResult
    count: int
    last_unix_s: float


@dataclass(frozen=True, slots=True)
class Reputation:
    score: float
    lower: float
    jobs: int
    failures: int
    """Of those jobs; counted without decay."""
    causes: tuple[FailureCause, ...]
    """The most frequent first."""


def reputation_of(counts: Iterable[DayCount], *, today: dt.date) -> Reputation:
    done = failed = 0.0
    jobs = 0
    causes: dict[AttemptResult, FailureCause] = {}
    for entry in counts:
        jobs += entry.count
        weighted = entry.count * weight_of(entry.day, today=today)
        if entry.result is AttemptResult.DONE:
            done += weighted
            continue
        failed += weighted
        cause = causes.get(entry.result, FailureCause(entry.result, 0, 0.0))
        last_unix_s = max(cause.last_unix_s, entry.last_unix_s)
        causes[entry.result] = FailureCause(entry.result, cause.count + entry.count, last_unix_s)
    ordered = sorted(causes.values(), key=lambda cause: (-cause.count, cause.result.value))
    return Reputation(
        score=(1.0 + done) / (2.0 + done + failed),
        lower=lower_bound(done, failed),
        jobs=jobs,
        failures=sum(cause.count for cause in ordered),
        causes=tuple(ordered),
    )


def weight_of(day: dt.date, *, today: dt.date) -> float:
    """A day in the future, by the clock of another gateway, counts as today."""
    return float(0.5 ** (max(0, (today - day).days) / HALF_LIFE_DAYS))


def lower_bound(done: float, failed: float) -> float:
    total = 2.0 + done + failed
    mean = (1.0 + done) / total
    spread = _Z * math.sqrt(mean * (1.0 - mean) / total + (_Z / (2.0 * total)) ** 2)
    return max(0.0, (mean + _Z * _Z / (2.0 * total) - spread) / (1.0 + _Z * _Z / total))
