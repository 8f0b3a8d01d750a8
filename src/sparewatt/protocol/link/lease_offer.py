"""What a node offers for leases: prices by number of GPUs and duration, and how much of the machine is free.

A standing offer, in the node's own words. A bid is made anew for each order, and the owner's rules may refuse a tenant
or an image that the offer does not show.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

GPU_COUNTS_MAX, DISCOUNTS_MAX = 16, 8
PPM = 10**6
LEASE_PRICE_UUSD_MAX = (1 << 40) - 1
"""The largest price that the protocol of the match allows."""

LeasePriceUusd = Annotated[int, Meta(ge=1, le=LEASE_PRICE_UUSD_MAX)]
LeaseSeconds = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_Uint32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_Flag = Annotated[int, Meta(ge=0, le=1)]


class LeasePrice(msgspec.Struct, frozen=True):
    """Per hour and for the whole lease, of a lease with this number of GPUs."""

    gpus: Annotated[int, Meta(ge=1, le=1024)]
    hourly_uusd: LeasePriceUusd


class LeaseDiscount(msgspec.Struct, frozen=True):
    """For a lease that is ordered for at least this long."""

    least_s: LeaseSeconds
    off_ppm: Annotated[int, Meta(ge=0, lt=PPM)]


class LeaseOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Units are those of the market's `Specification` and `Terms`."""

    prices: Annotated[tuple[LeasePrice, ...], Meta(max_length=GPU_COUNTS_MAX)] = ()
    cpu_hourly_uusd: LeasePriceUusd | None = None
    """Per processor, of a lease without GPUs; None: the owner leases none without."""
    discounts: Annotated[tuple[LeaseDiscount, ...], Meta(max_length=DISCOUNTS_MAX)] = ()
    longest_s: LeaseSeconds
    gpus: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Free now, as are the next three."""
    cpu_milli: _Uint32 = 0
    memory_mib: _Uint32 = 0
    disk_mib: _Uint32 = 0
    disk_kind: _Flag = 0
    """0: the agent watches how much is used; 1: the file system enforces it."""
    egress: _Flag = 0
    """0: no network; 1: public addresses."""
    reclaim_s: LeaseSeconds = 0
    """The notice that the owner gives before taking the machine back."""
    down_mbps: _Uint32 = 0
    up_mbps: _Uint32 = 0
    """As measured; 0: unknown."""
    runtime: bool = False
    """Whether this node starts the containers of leases that it wins."""

    def hourly_uusd(self, *, gpus: int, cpu_milli: int, duration_s: int) -> int | None:
        """The price of a lease per hour, all-in; None if the owner has none for such a lease.

        A number of GPUs without a price of its own costs as much per GPU as the largest number below it.
        """
        if gpus == 0:
            full = None if self.cpu_hourly_uusd is None else -(-self.cpu_hourly_uusd * cpu_milli // 1_000)
        else:
            below = max((price for price in self.prices if price.gpus <= gpus), key=lambda p: p.gpus, default=None)
            full = None if below is None else -(-below.hourly_uusd * gpus // below.gpus)
        if full is None or full > LEASE_PRICE_UUSD_MAX:
            return None
        off_ppm = max((each.off_ppm for each in self.discounts if each.least_s <= duration_s), default=0)
        return max(1, -(-full * (PPM - off_ppm) // PPM))
