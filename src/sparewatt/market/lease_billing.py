"""What a lease costs now, what it has cost, and how long its deposit lasts: burn rate and runway. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparewatt.market.accrual import HOUR_S, PaymentStream, due_uusd, empty_at_of
from sparewatt.market.chain_records import LeaseRecord, LeaseState, OrderRecord

LOW_PERCENT = 80
"""Of the deposit as it was last filled: once it is spent, the renter is warned."""
MINUTES_PER_HOUR = 60


class DepositWarning(StrEnum):
    LOW = "deposit_low"
    """80 % of it is spent."""
    EMPTY = "deposit_empty"
    """It does not pay for a minute: the lease is paused, and closed when the grace ends."""


class RunLimit(StrEnum):
    """What ends a lease that runs, if nothing else happens."""

    DEPOSIT = "deposit"
    DURATION = "duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBilling:
    rate_uusd: int
    """Per hour, now: 0 while it does not run."""
    spent_uusd: int
    """Up to now, also what no settlement has written down yet."""
    left_uusd: int
    runway_s: int | None
    """How long what is left lasts at the agreed price; None without a provider."""
    runs_until: int | None
    """While it runs."""
    limit: RunLimit | None
    paused_s: int
    """All its pauses together, the present one included."""
    grace_ends_at: int | None
    """While it is paused: so long its provider is bound, and its data is kept."""
    warning: DepositWarning | None


def billing_of(order: OrderRecord, lease: LeaseRecord | None, stream: PaymentStream, *, at: int) -> LeaseBilling:
    """`at`: Unix seconds of the chain."""
    due = due_uusd(stream, at=at)
    spent, left = stream.charged_uusd + due, stream.deposit_uusd - due
    rate = lease.rate_uusd if lease is not None else 0
    is_running = stream.rate_uusd > 0
    empty_at = empty_at_of(stream) if is_running else 0
    limit = RunLimit.DEPOSIT if empty_at < stream.end_at else RunLimit.DURATION
    is_paused = lease is not None and lease.state is LeaseState.PAUSED
    paused_at = lease.paused_at if lease is not None else 0
    return LeaseBilling(
        rate_uusd=stream.rate_uusd,
        spent_uusd=spent,
        left_uusd=left,
        runway_s=left * HOUR_S // rate if rate else None,
        runs_until=min(empty_at, stream.end_at) if is_running else None,
        limit=limit if is_running else None,
        paused_s=(lease.paused_s if lease is not None else 0) + (max(0, at - paused_at) if is_paused else 0),
        grace_ends_at=paused_at + order.terms.empty_grace_s if is_paused else None,
        warning=_warning(lease, stream, left=left),
    )


def _warning(lease: LeaseRecord | None, stream: PaymentStream, *, left: int) -> DepositWarning | None:
    if lease is None or lease.state is LeaseState.CLOSED or stream.refunded_uusd is not None:
        return None
    if lease.state is LeaseState.PAUSED and left < max(1, lease.rate_uusd // MINUTES_PER_HOUR):
        return DepositWarning.EMPTY
    return DepositWarning.LOW if 100 * left <= (100 - LOW_PERCENT) * stream.filled_uusd else None
