"""What the operator owes a renter whose lease was up for less than 99.9 % of its time. Pure.

It is what the lost seconds would have cost, less what providers' bonds have compensated, and never more than the fee
that the network took of this very lease. The last bound is what makes the credit safe: whoever rents from itself under
two names, and lets its own machine fail, gets back at most what it has paid to the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparewatt.market.accrual import PaymentStream
from sparewatt.market.lease_uptime import UptimeTally


class NoUptimeCredit(StrEnum):
    """Why a lease below the goal is credited nothing."""

    OWN_PROVIDER = "own_provider"
    """A provider that had it is of the renter's own account."""
    COMPENSATED = "compensated"
    """Bonds have paid at least what was lost."""
    NO_FEE = "no_fee"
    """It has paid the network nothing."""


@dataclass(frozen=True, slots=True)
class UptimeRuling:
    uusd: int
    reason: NoUptimeCredit | None = None


def rule_on_uptime(tally: UptimeTally, stream: PaymentStream, *, is_own_provider: bool) -> UptimeRuling | None:
    """Of a lease that has ended; None if it was up for long enough."""
    if not tally.is_below_goal:
        return None
    if is_own_provider:
        return UptimeRuling(0, NoUptimeCredit.OWN_PROVIDER)
    uncompensated = tally.lost_uusd - stream.compensated_uusd
    if uncompensated <= 0:
        return UptimeRuling(0, NoUptimeCredit.COMPENSATED)
    if stream.fee_uusd <= 0:
        return UptimeRuling(0, NoUptimeCredit.NO_FEE)
    return UptimeRuling(min(uncompensated, stream.fee_uusd))
