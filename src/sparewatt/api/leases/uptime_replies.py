"""How much of the time a lease ran, and what its renter was credited for the rest, as replies. Pure."""

from __future__ import annotations

from sparewatt.core.money import format_usd
from sparewatt.ledger.uptime_fund import UptimeFundStatus, payable_now
from sparewatt.market.chain_records import OrderRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.market.lease_uptime import PPM, counted
from sparewatt.market.uptime_credit import NoUptimeCredit
from sparewatt.protocol.api.lease_uptime import LeaseUptime, LeaseUptimeCredit
from sparewatt.store.uptime_credits import UptimeCreditRow

_NOTHING_DUE = {
    NoUptimeCredit.OWN_PROVIDER.value: "a provider that had it is of your own account",
    NoUptimeCredit.COMPENSATED.value: "providers' bonds have paid you more than was lost",
    NoUptimeCredit.NO_FEE.value: "the network took no fee that it could give back",
}


def write_uptime(
    view: ChainView, order: OrderRecord, *, unix_s: float, credit: LeaseUptimeCredit | None = None
) -> LeaseUptime | None:
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
        credit=credit,
    )


def write_credit(row: UptimeCreditRow, fund: UptimeFundStatus | None) -> LeaseUptimeCredit:
    """`fund`: as it stands, if the credit waits."""
    percent = f"{percent_text(row.ppm)} %"
    if row.paid_nano is not None:
        usd = format_usd(row.paid_nano)
        return LeaseUptimeCredit(state="credited", usd=usd, text=f"credited ${usd} for {percent}", at=row.paid_unix_s)
    if not row.due_nano:
        why = _NOTHING_DUE.get(row.reason or "", "nothing is due")
        return LeaseUptimeCredit(state="none", usd="0", text=f"no credit for {percent}: {why}")
    usd = format_usd(row.due_nano)
    why = "it is being paid" if fund is None else _why_it_waits(row.due_nano, fund)
    return LeaseUptimeCredit(state="due", usd=usd, text=f"${usd} is due for {percent}: {why}")


def _why_it_waits(due: int, fund: UptimeFundStatus) -> str:
    if not fund.daily:
        return "the network's operator has stopped these credits"
    if payable_now(due, fund):
        return "it is being paid"
    if min(due, fund.daily) > fund.left_today:
        return "today's limit is used up; the next day begins at 00:00 UTC"
    return "the operator's fund for it is empty"


def percent_text(ppm: int) -> str:
    """Rounded down, so that a lease that failed once never shows 100."""
    whole, hundredths = divmod(ppm * 10_000 // PPM, 100)
    return f"{whole}.{hundredths:02d}" if hundredths else str(whole)
