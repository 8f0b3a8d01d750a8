"""How far a node can be relied on, and what it failed by: from counts per day, old ones fading. Pure.

Jobs that a node did and jobs that it failed are successes and failures of a Beta(1 + s, 1 + f), where a day counts half
as much HALF_LIFE_DAYS later. The score is the mean. Nodes are to be compared by the lower bound, below which the truth
lies with about 5 %: who has done little is not known to be good. The bound is Wilson's, of the two numbers as they
stand: closed, and one more failure never raises it, nor one more success lowers it. (The series for the quantile itself
is nearer to it, but does raise it for small failures.)
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome

HALF_LIFE_DAYS = 7.0
_Z = 1.6449
"""5 % of a normal distribution lie below minus this."""
_CLIENT_ERRORS = range(400, 500)
_JOB_TOO_LONG = "the job took longer"
_DONE = Outcome.DONE


class Result(enum.StrEnum):
    """What an attempt says about its node: that it did the job, or by what it failed."""

    DONE = "done"
    LINK_LOST = "link_lost"
    TIMED_OUT = "timed_out"
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_BROKE = "backend_broke"
    BACKEND_TIMEOUT = "backend_timeout"
    BACKEND_ERROR = "backend_error"
    PROTOCOL = "protocol"


_DID_IT = Result.DONE
_BY_CODE = {
    result.value: result
    for result in (Result.LINK_LOST, Result.BACKEND_UNREACHABLE, Result.BACKEND_BROKE, Result.BACKEND_TIMEOUT)
}


def result_of(attempt: AttemptRecord, record: MatchRecord) -> Result | None:
    """None where it says nothing: refused in time, cancelled, a bad request, or longer than any job may take."""
    if attempt.outcome is _DONE and attempt.reason is None:  # nearly always
        return _DID_IT
    reason = attempt.reason or ""
    has_status = reason.startswith("status ")
    match attempt.outcome:
        case Outcome.DONE:
            return None if has_status else Result.DONE
        case Outcome.TIMED_OUT:
            return None if reason.startswith(_JOB_TOO_LONG) else Result.TIMED_OUT
        case Outcome.FAILED if has_status:
            return None if record.error_status in _CLIENT_ERRORS else Result.BACKEND_ERROR
        case Outcome.FAILED:
            return _BY_CODE.get(reason.partition(":")[0], Result.PROTOCOL)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class DayCount:
    """How often one result was seen on one day, and when last."""

    day: dt.date
    result: Result
    count: int
    last_unix_s: float


@dataclass(frozen=True, slots=True)
class Cause:
    result: Result
    count: int
    last_unix_s: float


@dataclass(frozen=True, slots=True)
class Reputation:
    score: float
    lower: float
    jobs: int
    failures: int
    """Of those jobs, as they were counted: nothing faded."""
    causes: tuple[Cause, ...]
    """The most frequent first."""


def reputation_of(counts: Iterable[DayCount], *, today: dt.date) -> Reputation:
    done = failed = 0.0
    jobs = 0
    causes: dict[Result, Cause] = {}
    for each in counts:
        jobs += each.count
        weighed = each.count * weight_of(each.day, today=today)
        if each.result is Result.DONE:
            done += weighed
            continue
        failed += weighed
        before = causes.get(each.result, Cause(each.result, 0, 0.0))
        last_unix_s = max(before.last_unix_s, each.last_unix_s)
        causes[each.result] = Cause(each.result, before.count + each.count, last_unix_s)
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
