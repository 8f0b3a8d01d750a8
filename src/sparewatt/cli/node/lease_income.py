"""`sparewatt node earnings --by lease`: what leases bring, and until when machines are booked."""

from __future__ import annotations

import time

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.leases.money_view import at_text
from sparewatt.cli.leases.quote_view import duration_text
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.lease_income import LeaseIncome, LeaseIncomeList


def show_lease_income(client: ApiClient, *, as_json: bool) -> None:
    client.get("/earnings/leases").show(LeaseIncomeList, _print_income, as_json=as_json)


def _print_income(listed: LeaseIncomeList) -> None:
    usd = output.format_usd
    output.print_facts(
        [
            ("Earned", f"{usd(listed.earned_usd)}, settled on the chain, after the fee"),
            ("Due", f"{usd(listed.due_usd)} since then, before the fee"),
            ("Now", f"{usd(listed.hourly_usd)} an hour, before the fee"),
        ]
    )
    if not listed.data:
        output.note("No lease yet. 'sparewatt node leases' shows what this machine offers.")
        return
    now_s = time.time()
    columns: list[Column[LeaseIncome]] = [
        left("LEASE", lambda each: each.id[:18]),
        left("NODE", lambda each: each.node[:12]),
        left("STATE", lambda each: each.state),
        left("SINCE", lambda each: at_text(each.placed_at)),
        left("BOOKED", lambda each: _booked(each, now_s=now_s)),
        right("PRICE/H", lambda each: usd(each.hourly_usd)),
        right("DUE", lambda each: usd(each.due_usd)),
        right("EARNED", lambda each: usd(each.earned_usd)),
    ]
    output.print_table(columns, listed.data, may_drop=("SINCE", "NODE"))


def _booked(each: LeaseIncome, *, now_s: float) -> str:
    if each.left_at is not None:
        return f"until {output.ago(each.left_at, now_s=now_s)}"
    return "now" if each.ends_at is None else f"for {duration_text(max(0.0, each.ends_at - now_s))}"
