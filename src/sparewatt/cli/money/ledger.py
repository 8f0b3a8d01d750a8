"""`sparewatt ledger`: whether the books are in order. For operators."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.cli.money.credits import id_option
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, amount_body
from sparewatt.cli.money.uptime_fund_view import print_uptime_fund, print_uptime_funding
from sparewatt.cli.output import Fact
from sparewatt.protocol.api.ledger import (
    ChainAudit,
    ChainDifference,
    LedgerAudit,
    UptimeFundPosting,
    UptimeFundReply,
)


@click.group()
@examples("sparewatt ledger audit", "sparewatt ledger uptime")
def ledger() -> None:
    """Check the books of a network, rebuild its balances, or credit leases that were down."""


@ledger.command("audit")
@network_options
@examples("sparewatt ledger audit")
def audit(client: ApiClient, *, as_json: bool) -> None:
    """Check that postings sum to zero, balances match them, and the chain agrees. The exit code is 1 if not."""
    _report(client.get("/ledger/audit"), as_json=as_json)


@ledger.command("rebuild")
@network_options
@examples("sparewatt ledger rebuild")
def rebuild(client: ApiClient, *, as_json: bool) -> None:
    """Rebuild all balances from the postings, then check the books. Nothing that was posted changes."""
    _report(client.post("/ledger/rebuild", {}), as_json=as_json)


@ledger.command("uptime")
@network_options
@examples("sparewatt ledger uptime")
def uptime(client: ApiClient, *, as_json: bool) -> None:
    """Show the fund that credits renters of leases below 99.9 % of uptime, its daily limit and its last credits."""
    client.get("/ledger/uptime").show(UptimeFundReply, print_uptime_fund, as_json=as_json)


@ledger.command("fund-uptime", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@id_option
@network_options
@examples("sparewatt ledger fund-uptime 50 --id november")
def fund_uptime(client: ApiClient, *, usd: str, reference: str | None, as_json: bool) -> None:
    """Put money aside for renters whose leases will be down. What is credited per day is a setting of the gateway."""
    reply = client.post("/ledger/uptime/fund", amount_body(usd, reference=reference))
    reply.show(UptimeFundPosting, print_uptime_funding, as_json=as_json)


def _report(reply: ApiReply, *, as_json: bool) -> None:
    reply.show(LedgerAudit, _print_audit, as_json=as_json)
    if not reply.parse(LedgerAudit).in_order:
        raise CliError(
            "The books are not in order.",
            next_step="Wrong balances: 'sparewatt ledger rebuild'. Anything else is a bug or a theft; report it.",
        )


def _print_audit(audit: LedgerAudit) -> None:
    output.print_facts(
        [
            ("Books", "in order" if audit.in_order else "NOT in order"),
            ("Sum of all postings", f"{audit.sum_nano} (0 is right)"),
            ("Unbalanced causes", str(audit.unbalanced_causes)),
            ("Open clearing accounts", str(audit.open_clearing_accounts)),
            ("Wrong balances", str(audit.wrong_balances)),
            ("Overdrawn accounts", str(audit.overdrawn)),
            *_chain_facts(audit.chain),
        ]
    )
    if audit.chain_note:
        output.note(audit.chain_note)


def _chain_facts(chain: ChainAudit | None) -> list[Fact]:
    if chain is None:
        return []
    return [
        ("Chain", f"{'agrees' if chain.in_order else 'DIFFERS'} at block {chain.block}, {chain.addresses} addresses"),
        ("Uncovered", f"{chain.uncovered_nano} (0 is right)"),
        ("Shortfall of exits", f"{chain.shortfall_nano} (0 is right)"),
        *((f"{each.pocket} of {each.account or 'the network'}", _describe(each)) for each in chain.differences),
    ]


def _describe(difference: ChainDifference) -> str:
    return f"{difference.id}: the books say {difference.books_micro}, the chain {difference.chain_micro} micro-dollars"
