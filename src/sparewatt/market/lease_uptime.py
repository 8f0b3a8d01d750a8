"""The uptime of a lease over its failovers: how many of the seconds in which it should have run it did. Pure.

Every second since its first start counts as one thing: running, down, paused, or waiting for its renter. Only the first
two are the uptime's. The seconds come from the chain's events alone; `event_fold` says which event begins what. Whether
the renter's own program did anything in that time is not measured here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

HOUR_S = 3_600
PPM = 1_000_000
UPTIME_GOAL_PPM = 999_000
"""99.9 %: below it the operator's line credits the renter."""


class UptimeSpan(Enum):
    """What the seconds count as from now on."""

    UNSTARTED = "unstarted"
    RUNNING = "running"
    DOWN = "down"
    """No provider runs it: the last one failed or left, and the next has not confirmed its start."""
    PAUSED = "paused"
    """By its renter or an empty deposit, until its provider has confirmed that it runs again."""
    WAITING = "waiting"
    """It needs a new auction, and only its renter can open that."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class UptimeTally:
    """What was counted until `since`; `span` is what counts from there."""

    span: UptimeSpan = UptimeSpan.UNSTARTED
    since: int = 0
    running_s: int = 0
    down_s: int = 0
    paused_s: int = 0
    waiting_s: int = 0
    outages: int = 0
    rate_uusd: int = 0
    """Per hour: the price of whoever ran it last."""
    lost_uusd: int = 0
    """What the seconds that it was down would have cost, each at the price of the provider that failed."""

    @property
    def has_started(self) -> bool:
        return self.running_s + self.down_s > 0 or self.span is UptimeSpan.RUNNING

    @property
    def ppm(self) -> int | None:
        """Of a million seconds, those that it ran; rounded down. None if it never was to run."""
        due_s = self.running_s + self.down_s
        return self.running_s * PPM // due_s if due_s else (PPM if self.has_started else None)

    @property
    def is_below_goal(self) -> bool:
        """Exact: a lease of which one second too many is missing is below."""
        return self.running_s * PPM < UPTIME_GOAL_PPM * (self.running_s + self.down_s)


def counted(tally: UptimeTally, *, at: int) -> UptimeTally:
    """With the seconds up to a moment."""
    seconds = max(0, at - tally.since)
    match tally.span:
        case UptimeSpan.UNSTARTED | UptimeSpan.ENDED:
            return tally
        case UptimeSpan.RUNNING:
            tally = replace(tally, running_s=tally.running_s + seconds)
        case UptimeSpan.DOWN:
            lost = tally.rate_uusd * seconds // HOUR_S
            tally = replace(tally, down_s=tally.down_s + seconds, lost_uusd=tally.lost_uusd + lost)
        case UptimeSpan.PAUSED:
            tally = replace(tally, paused_s=tally.paused_s + seconds)
        case UptimeSpan.WAITING:
            tally = replace(tally, waiting_s=tally.waiting_s + seconds)
        case _ as never:
            assert_never(never)
    return replace(tally, since=max(tally.since, at))


def running_from(tally: UptimeTally, *, at: int, rate_uusd: int) -> UptimeTally:
    return replace(counted(tally, at=at), span=UptimeSpan.RUNNING, since=at, rate_uusd=rate_uusd)


def down_from(tally: UptimeTally, *, since: int, at: int) -> UptimeTally:
    """Down since a moment that may lie before the event that tells of it, but not before it last began to run.

    A stand-in that fails prolongs the outage that it was to end.
    """
    if tally.span not in {UptimeSpan.RUNNING, UptimeSpan.PAUSED}:
        return tally
    down_at = max(tally.since, min(since, at)) if tally.span is UptimeSpan.RUNNING else at
    return replace(turned(tally, UptimeSpan.DOWN, at=down_at), outages=tally.outages + 1)


def turned(tally: UptimeTally, span: UptimeSpan, *, at: int) -> UptimeTally:
    """Of a lease that never ran nothing counts."""
    if tally.span in {UptimeSpan.UNSTARTED, UptimeSpan.ENDED}:
        return tally if span is not UptimeSpan.ENDED else replace(tally, span=span, since=at)
    return replace(counted(tally, at=at), span=span, since=at)
