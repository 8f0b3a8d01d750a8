"""`sparewatt ledger`: whether the books are in order. For operators."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.protocol.api.ledger import LedgerAudit


@click.group()
@examples("sparewatt ledger audit")
def ledger() -> None:
    """Check the books of a network, or rebuild its balances."""


@ledger.command("audit")
@network_options
@examples("sparewatt ledger audit")
def audit(client: ApiClient, *, as_json: bool) -> None:
    """Check that all postings sum to zero and all balances are what they say. The exit code is 1 if not."""
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
            next_step="Wrong balances: 'sparewatt ledger rebuild'. Anything else is a bug; please report it.",
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
        ]
    )
