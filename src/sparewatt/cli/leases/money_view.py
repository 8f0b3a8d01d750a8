"""How a lease's money, its end and its history are shown."""

from __future__ import annotations

import time

from sparewatt.cli import output
from sparewatt.cli.leases.quote_view import duration_text
from sparewatt.cli.output import Column, left, prose, right
from sparewatt.protocol.api.lease_changes import LeaseEnding, LeaseEvent, LeaseEventList, LeaseMoney
from sparewatt.protocol.api.leases import Lease

_LOW = {"deposit_low": "80 % spent", "deposit_empty": "empty"}


def at_text(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))


def runway_text(money: LeaseMoney) -> str:
    """How long it goes on: until its deposit or its agreed time is used up."""
    if money.warning == "deposit_empty":
        left_s = max(0, (money.grace_ends_at or money.as_of) - money.as_of)
        return f"empty, {duration_text(left_s)} of grace"
    if money.runs_until is not None:
        text = duration_text(max(0, money.runs_until - money.as_of))
        return f"{text}, {_LOW[money.warning]}" if money.warning else text
    return output.UNKNOWN if money.runway_s is None else f"{duration_text(money.runway_s)} when it runs"


def money_facts(money: LeaseMoney, *, max_spend_usd: str | None) -> list[tuple[str, str]]:
    facts = [
        ("Costs now", f"{output.format_usd(money.hourly_usd)} an hour"),
        ("Spent so far", f"${money.spent_usd}; ${money.left_usd} of the deposit is left"),
        ("Runway", _runway(money)),
    ]
    if money.paused_s:
        facts.append(("Paused", f"{duration_text(money.paused_s)} in all"))
    if max_spend_usd is not None:
        facts.append(("May cost", f"${max_spend_usd} at most"))
    if money.warning is not None:
        facts.append(("WARNING", f"{_warning(money)} {money.next_step or ''}".rstrip()))
    return facts


def _runway(money: LeaseMoney) -> str:
    if money.runs_until is None:
        return runway_text(money)
    why = "its deposit is used up" if money.limit == "deposit" else "its time is over"
    return f"{duration_text(max(0, money.runs_until - money.as_of))}, until {at_text(money.runs_until)}: then {why}"


def _warning(money: LeaseMoney) -> str:
    if money.warning == "deposit_low":
        return "80 % of the deposit is spent."
    ends = at_text(money.grace_ends_at) if money.grace_ends_at is not None else "the grace's end"
    return f"The deposit is used up and the lease is paused; its data is kept until {ends}."


def ending_text(ending: LeaseEnding) -> str:
    """Who, why, and where its money went."""
    parts = [f"paid ${ending.paid_usd}"]
    if ending.refunded_usd is not None:
        parts.append(f"refunded ${ending.refunded_usd}")
    if ending.compensation_usd not in {"0", "0.00"}:
        parts.append(f"compensation from providers' bonds ${ending.compensation_usd}")
    return f"by the {ending.who}: {ending.why} ({ending.reason}); {', '.join(parts)}"


def print_events(listed: LeaseEventList) -> None:
    if not listed.data:
        output.note("Nothing has happened yet: the order is not on the chain.")
        return
    columns: list[Column[LeaseEvent]] = [
        left("TIME", lambda each: at_text(each.at)),
        left("EVENT", lambda each: each.kind.replace("_", " ")),
        left("BY", lambda each: each.who),
        prose("WHAT", _what),
        right("AMOUNT", _amount),
    ]
    output.print_table(columns, listed.data, may_drop=("BY",))


def _what(event: LeaseEvent) -> str:
    more = []
    if event.provider is not None:
        more.append(event.provider)
    if event.hourly_usd is not None:
        more.append(f"{output.format_usd(event.hourly_usd)} an hour")
    if event.duration_s is not None:
        more.append(f"for {duration_text(event.duration_s)}")
    if event.paid_usd is not None and event.refunded_usd is not None:
        more.append(f"paid ${event.paid_usd}, refunded ${event.refunded_usd}")
    if event.compensation_usd not in {None, "0"}:
        more.append(f"compensation ${event.compensation_usd}")
    reason = f" ({event.reason})" if event.reason is not None else ""
    return f"{event.text}{reason}{': ' if more else ''}{', '.join(more)}"


def _amount(event: LeaseEvent) -> str:
    return "" if event.amount_usd is None else f"+${event.amount_usd}"


def list_runway(lease: Lease) -> str:
    return output.UNKNOWN if lease.money is None or lease.ending is not None else runway_text(lease.money)
