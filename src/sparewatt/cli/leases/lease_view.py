"""How leases are shown: a table of them, and one with all that is known of it."""

from __future__ import annotations

from sparewatt.cli import output
from sparewatt.cli.leases.money_view import at_text, ending_text, list_runway, money_facts
from sparewatt.cli.leases.quote_view import duration_text
from sparewatt.cli.leases.uptime_view import list_uptime, uptime_facts
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.leases import Lease, LeaseProgram

ENDED = frozenset({"failed", "closed", "expired"})
"""Phases after which nothing happens to an order or its lease."""


def print_leases(leases: list[Lease]) -> None:
    columns: list[Column[Lease]] = [
        left("ID", lambda each: each.id),
        left("NAME", lambda each: each.name),
        left("STATE", _state),
        right("GPUS", lambda each: str(each.gpus)),
        left("PROVIDER", lambda each: (_provider(each) or output.UNKNOWN)[:18]),
        right("PER HOUR", _hourly),
        right("SPENT", lambda each: output.UNKNOWN if each.money is None else output.format_usd(each.money.spent_usd)),
        right("DEPOSIT", lambda each: output.format_usd(_deposit(each))),
        left("RUNWAY", list_runway),
        right("UPTIME", list_uptime),
    ]
    output.print_table(columns, leases, may_drop=("GPUS", "PROVIDER", "DEPOSIT", "SPENT", "UPTIME"))
    for each in leases:
        if each.money is not None and each.money.warning is not None:
            output.note(f"WARNING {each.id}: {each.money.next_step}")
        if each.program is not None and each.program.warning is not None:
            output.note(f"WARNING {each.id}: {each.program.warning}")


def print_lease(each: Lease, *, why: str | None = None) -> None:
    """`why`: of an order that found nobody."""
    nobody = "none" if each.phase in ENDED else "none yet"
    facts: list[tuple[str, str]] = [
        ("Id", each.id),
        ("Name", each.name),
        ("Order", each.order_id or ("none" if each.phase == "failed" else "not on the chain yet")),
        ("State", _state(each)),
        *([("Why", why)] if why else []),
        ("Image", each.image),
        ("Machine", f"{each.gpus} GPUs, {each.cpus:g} CPUs, {each.memory_gb:g} GB memory, {each.disk_gb:g} GB disk"),
        ("Duration", duration_text(each.duration_s)),
        ("Highest price", f"{output.format_usd(each.max_hourly_usd)} an hour"),
        ("Deposit", _money(each)),
        ("Provider", _provider(each) or nobody),
        ("Price", _hourly(each) if _provider(each) is None else f"{_hourly(each)} an hour"),
    ]
    if each.program is not None:
        facts += program_facts(each.program)
    if each.ending is not None:
        facts.append(("Ended", ending_text(each.ending)))
    elif each.money is not None and _provider(each) is not None:
        facts += money_facts(each.money, max_spend_usd=each.max_spend_usd)
    facts += uptime_facts(each.uptime)
    if each.secrets:
        facts.append(("Secrets", _secrets(each)))
    if each.problem:
        facts.append(("Problem", each.problem))
    output.print_facts(facts)


def program_facts(program: LeaseProgram) -> list[tuple[str, str]]:
    """By the provider's word."""
    if program.phase is None:
        text = "its provider has not said yet"
    else:
        since = f" since {at_text(program.since)}" if program.since else ""
        again = f", started again {program.restarts} times" if program.restarts else ""
        code = f", exit code {program.exit_code}" if program.exit_code is not None else ""
        text = f"{program.phase}{since}{again}{code}{f': {program.trouble}' if program.trouble else ''}"
    return [("Program", text), *([("WARNING", program.warning)] if program.warning else [])]


def _secrets(each: Lease) -> str:
    """Of a lease in full, also what its provider waits for."""
    names, missing = ", ".join(each.secrets), getattr(each, "missing_secrets", [])
    if each.phase == "unmatched":
        return f"{names}: a new auction waits for you, 'sparewatt lease reopen {each.id}', then send them again"
    if missing:
        return f"it waits for {', '.join(missing)}: 'sparewatt lease secrets {each.id}' sends them"
    return f"{names} (names only; values are sealed by you)"


def _state(each: Lease) -> str:
    order = each.order
    if order is not None and order.lease is not None:
        reason = order.lease.close_reason
        return f"{each.phase}, lease {order.lease.state}{f' ({reason})' if reason else ''}"
    return each.phase if order is None or order.reason is None else f"{each.phase} ({order.reason})"


def _provider(each: Lease) -> str | None:
    return each.order.lease.provider if each.order is not None and each.order.lease is not None else None


def _hourly(each: Lease) -> str:
    if each.order is None or each.order.lease is None:
        return output.UNKNOWN
    return output.format_usd(each.order.lease.hourly_usd)


def _money(each: Lease) -> str:
    """What is left of all that was put in; of what has ended, what it cost and what came back."""
    order, deposit = each.order, each.deposit_usd if each.money is None else each.money.deposited_usd
    if order is None:
        text = output.format_usd(deposit)
        return f"{text}, of which nothing was taken" if each.phase == "failed" else text
    if order.refunded_usd is not None:  # to the last unit, so that the three add up
        return f"${deposit}, of which it cost ${order.charged_usd}; ${order.refunded_usd} came back to you"
    spent = "" if order.charged_usd == "0" else f"; it has cost {output.format_usd(order.charged_usd)} so far"
    return f"{output.format_usd(order.deposit_usd)} of {output.format_usd(deposit)} left{spent}"


def _deposit(each: Lease) -> str:
    """What is left of it, by the second where that is known."""
    if each.money is not None:
        return each.money.left_usd
    return each.deposit_usd if each.order is None else each.order.deposit_usd
