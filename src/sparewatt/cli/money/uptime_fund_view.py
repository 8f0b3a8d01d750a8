"""How the operator's uptime fund and its credits are shown."""

from __future__ import annotations

from sparewatt.cli import output
from sparewatt.cli.leases.money_view import at_text
from sparewatt.cli.output import Column, left, right
from sparewatt.core.plural import pluralize
from sparewatt.protocol.api.ledger import UptimeCreditEntry, UptimeFundBalance, UptimeFundPosting, UptimeFundReply

_REASONS = {
    "own_provider": "renter and provider are one account",
    "compensated": "compensated by bonds",
    "no_fee": "it paid no fee",
}


def print_uptime_fund(reply: UptimeFundReply) -> None:
    _print_balance(reply.fund)
    if reply.data:
        columns: list[Column[UptimeCreditEntry]] = [
            left("LEASE", lambda each: each.lease),
            left("ACCOUNT", lambda each: each.account),
            left("ENDED", lambda each: at_text(each.ended_at)),
            right("UPTIME", lambda each: f"{each.percent} %"),
            right("DUE", lambda each: output.format_usd(each.due_usd)),
            left("CREDITED", _credited),
        ]
        output.print_table(columns, reply.data, may_drop=("ACCOUNT", "ENDED"))
    if not reply.fund.daily_limit_nano:
        output.note("The daily limit is 0: nothing is credited. The gateway's setting is uptime_credit_daily_usd.")
    elif not reply.fund.balance_nano:
        output.note("Empty: credits wait until an operator runs 'sparewatt ledger fund-uptime USD'.")


def print_uptime_funding(posting: UptimeFundPosting) -> None:
    output.note("Funded." if posting.posted else "Done before, nothing changed.")
    _print_balance(posting.fund)


def _print_balance(fund: UptimeFundBalance) -> None:
    usd = output.format_usd
    waiting = f"{usd(fund.waiting_usd)} of {pluralize(fund.waiting_leases, 'lease')}"
    output.print_facts(
        [
            ("Uptime fund", usd(fund.balance_usd)),
            ("For leases below", f"{fund.goal_percent} %"),
            ("Per day", f"at most {usd(fund.daily_limit_usd)}"),
            ("Today", f"{usd(fund.credited_today_usd)} credited so far"),
            ("Waiting", waiting if fund.waiting_leases else "nothing"),
        ]
    )


def _credited(entry: UptimeCreditEntry) -> str:
    if entry.reason is not None:
        return f"nothing: {_REASONS.get(entry.reason, entry.reason)}"
    return "waits" if entry.credited_usd is None else output.format_usd(entry.credited_usd)
