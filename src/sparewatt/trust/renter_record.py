"""A renter's record: what became of its orders, as far as that was the renter's doing. Pure, whole numbers only.

Providers reserve capacity to bid and fetch images to start. An order that is withdrawn while its auction is open, or a
lease that its renter closes before it has started, cost them that for nothing. Owners' rules may decline renters by the
share of such orders; every record begins with two kept orders, so one change of mind is no verdict. A renter with many
addresses has many records: the rule keeps out the careless, not the determined, whose orders cost gas and a deposit.
"""

from __future__ import annotations

from dataclasses import dataclass

PPM = 10**6
PRIOR_ORDERS = 2


@dataclass(frozen=True, slots=True)
class RenterRecord:
    orders: int = 0
    withdrawn: int = 0
    """By the renter, while an auction was open."""
    unstarted: int = 0
    """Leases that the renter closed before they had started."""

    @property
    def broken(self) -> int:
        return self.withdrawn + self.unstarted


def is_declined(*, orders: int, broken: int, broken_ppm_max: int | None) -> bool:
    """By an owner's rule; None: the owner has none."""
    return broken_ppm_max is not None and broken * PPM > broken_ppm_max * (max(orders, broken) + PRIOR_ORDERS)
