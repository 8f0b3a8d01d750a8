"""The uptime of a lease over its failovers, in replies about leases."""

from __future__ import annotations

from typing import Literal

import msgspec


class LeaseUptimeCredit(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's fund credits the renter of a lease that ended below 99.9 %."""

    state: Literal["credited", "due", "none"]
    usd: str
    """Credited, or still due."""
    text: str
    """`credited $0.05 for 99.20 %`, or why not, or why not yet."""
    at: float | None = None
    """When it was credited."""


class LeaseUptime(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the time since its first start it ran, of that in which it was to run; by the chain's events."""

    as_of: int
    percent: str
    """Rounded down to hundredths: `100`, `99.97`."""
    running_s: int
    down_s: int
    """No provider ran it: from the second up to which the last one was paid until the next confirmed its start."""
    paused_s: int
    """Not counted: by its renter or an empty deposit, with the start after it."""
    waiting_s: int
    """Not counted: it needed a new auction that only its renter could open."""
    outages: int
    credit: LeaseUptimeCredit | None = None
    """Of a lease that has ended and was ruled on; None if it was up for 99.9 % or more."""
