"""How the uptime of a lease is shown."""

from __future__ import annotations

from sparewatt.cli import output
from sparewatt.cli.leases.quote_view import duration_text
from sparewatt.core.plural import pluralize
from sparewatt.protocol.api.lease_uptime import LeaseUptime
from sparewatt.protocol.api.leases import Lease


def list_uptime(lease: Lease) -> str:
    return output.UNKNOWN if lease.uptime is None else f"{lease.uptime.percent} %"


def uptime_facts(uptime: LeaseUptime | None) -> list[tuple[str, str]]:
    if uptime is None:
        return []
    credit = [] if uptime.credit is None else [("Credit", uptime.credit.text)]
    return [("Uptime", _describe(uptime)), *credit]


def _describe(uptime: LeaseUptime) -> str:
    parts = [f"{uptime.percent} %: ran {duration_text(uptime.running_s)}"]
    if uptime.outages:
        parts.append(f"was down {duration_text(uptime.down_s)} in {pluralize(uptime.outages, 'outage')}")
    not_counted = [
        *([f"{duration_text(uptime.paused_s)} paused"] if uptime.paused_s else []),
        *([f"{duration_text(uptime.waiting_s)} in which a new auction waited for you"] if uptime.waiting_s else []),
    ]
    if not_counted:
        parts.append(f"not counted: {' and '.join(not_counted)}")
    return ", ".join(parts)
