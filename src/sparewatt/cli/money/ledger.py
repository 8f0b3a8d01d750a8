"""`sparewatt ledger`: whether the books are in order. For operators."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.cli.output import Fact
from sparewatt.protocol.api.ledger import ChainAudit, ChainDifference, LedgerAudit


@click.group()
@examples("sparewatt ledger audit")
def ledger() -> None:
    """Check the books of a network, or rebuild its balances."""


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
