"""How reliable a node is, and what it failed by: from counts per day, with exponential forgetting. Pure.

Finished and failed jobs are successes and failures of a Beta(1 + s, 1 + f) distribution, where a day counts half as
much HALF_LIFE_DAYS later. The score is its mean. Nodes are compared by the lower bound, below which the truth lies with
about 5 %: a node that has done little is not known to be good. The bound is Wilson's: in closed form, and one more
failure never raises it, nor one more success lowers it. (A series for the quantile itself is closer to it, but does
raise it for small numbers of failures.)
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

HALF_LIFE_DAYS = 7.0
_Z = 1.6449
"""5 % of a normal distribution lie below minus this."""


class AttemptResult(enum.StrEnum):
    """What an attempt says about its node: that it did the job, or by what it failed."""

    DONE = "done"
    LINK_LOST = "link_lost"
    TIMED_OUT = "timed_out"
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_BROKE = "backend_broke"
    BACKEND_TIMEOUT = "backend_timeout"
    BACKEND_ERROR = "backend_error"
    PROTOCOL = "protocol"


@dataclass(frozen=True, slots=True)
class DayCount:
    """How often one result was seen on one day, and when last."""

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
    """Of those jobs, as they were counted: nothing faded."""
    causes: tuple[FailureCause, ...]
    """The most frequent first."""


def reputation_of(counts: Iterable[DayCount], *, today: dt.date) -> Reputation:
    done = failed = 0.0
    jobs = 0
    causes: dict[AttemptResult, FailureCause] = {}
    for each in counts:
        jobs += each.count
        weighed = each.count * weight_of(each.day, today=today)
        if each.result is AttemptResult.DONE:
            done += weighed
            continue
        failed += weighed
        before = causes.get(each.result, FailureCause(each.result, 0, 0.0))
        last_unix_s = max(before.last_unix_s, each.last_unix_s)
        causes[each.result] = FailureCause(each.result, before.count + each.count, last_unix_s)
    ordered = sorted(causes.values(), key=lambda cause: (-cause.count, cause.result.value))
    return Reputation(
        score=(1.0 + done) / (2.0 + done + failed),
        lower=lower_bound(done, failed),
        jobs=jobs,
        failures=sum(cause.count for cause in ordered),
        causes=tuple(ordered),
    )


def weight_of(day: dt.date, *, today: dt.date) -> float:
    """A day that has not come yet, by another gateway's clock, counts as today."""
    return float(0.5 ** (max(0, (today - day).days) / HALF_LIFE_DAYS))


def lower_bound(done: float, failed: float) -> float:
    total = 2.0 + done + failed
    mean = (1.0 + done) / total
    spread = _Z * math.sqrt(mean * (1.0 - mean) / total + (_Z / (2.0 * total)) ** 2)
    return max(0.0, (mean + _Z * _Z / (2.0 * total) - spread) / (1.0 + _Z * _Z / total))
