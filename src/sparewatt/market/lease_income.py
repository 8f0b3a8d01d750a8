"""What leases pay their providers: by lease and provider, out of the chain's events. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparewatt.market.accrual import PaymentStream, due_uusd
from sparewatt.market.chain_records import LeaseRecord, LeaseState, LeaseTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class TermIncome:
    """Of one provider in one lease. Who had it twice has the times of the last term, and the pay of both."""

    lease: LeaseRecord
    term: LeaseTerm
    earned_uusd: int
    """Without the fee, as settled."""
    due_uusd: int
    """Since the last settlement, with the fee; 0 unless it has the lease now."""
    ends_at: int | None
    """While it runs: when its agreed time is over."""

    @property
    def is_current(self) -> bool:
        return self.term.left_at is None


def income_of(lease: LeaseRecord, stream: PaymentStream, providers: Collection[str], *, at: int) -> list[TermIncome]:
    """Of those of these providers that had the lease, in the order in which they had it."""
    last = {term.provider: term for term in lease.terms if term.provider in providers}
    return [_income(lease, stream, term, at=at) for term in last.values()]


def _income(lease: LeaseRecord, stream: PaymentStream, term: LeaseTerm, *, at: int) -> TermIncome:
    is_running = term.left_at is None and lease.state is LeaseState.ACTIVE
    return TermIncome(
        lease=lease,
        term=term,
        earned_uusd=stream.net_of.get(term.provider, 0),
        due_uusd=due_uusd(stream, at=at) if is_running else 0,
        ends_at=stream.end_at if is_running else None,
    )
