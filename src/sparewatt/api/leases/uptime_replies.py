"""How much of the time a lease ran, as a reply. Pure."""

from __future__ import annotations

from sparewatt.market.chain_records import OrderRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.market.lease_uptime import PPM, counted
from sparewatt.protocol.api.lease_uptime import LeaseUptime


def write_uptime(view: ChainView, order: OrderRecord, *, unix_s: float) -> LeaseUptime | None:
    """None until it has started for the first time."""
    lease, now = view.latest.leases.get(order.order_id), max(int(unix_s), view.latest_unix_s)
    tally = None if lease is None else counted(lease.uptime, at=now)
    if tally is None or tally.ppm is None:
        return None
    return LeaseUptime(
        as_of=now,
        percent=percent_text(tally.ppm),
        running_s=tally.running_s,
        down_s=tally.down_s,
        paused_s=tally.paused_s,
        waiting_s=tally.waiting_s,
        outages=tally.outages,
    )


def percent_text(ppm: int) -> str:
    """Rounded down, so that a lease that failed once never shows 100."""
    whole, hundredths = divmod(ppm * 10_000 // PPM, 100)
    return f"{whole}.{hundredths:02d}" if hundredths else str(whole)
