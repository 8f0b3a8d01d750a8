"""`sparewatt ledger`: are the books in order? For operators."""

from __future__ import annotations

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.errors import CliError


class Audit(msgspec.Struct):
    in_order: bool
    sum_nano: int
    unbalanced_causes: int
    open_clearing_accounts: int
    wrong_balances: int
    overdrawn: int


@click.group()
def ledger() -> None:
    """Check the books of a network, or make its balances anew.

    \b
    Example:
      sparewatt ledger audit
    """


@ledger.command("audit")
@json_option
@network_options
def audit(client: ApiClient, *, as_json: bool) -> None:
    """Check that all postings sum to zero and all balances are what they say. The exit code is 1 if not.

    \b
    Example:
      sparewatt ledger audit
    """
    _report(client.get("/ledger/audit"), as_json=as_json)


@ledger.command("rebuild")
@json_option
@network_options
def rebuild(client: ApiClient, *, as_json: bool) -> None:
    """Make all balances anew from the postings, then check the books. Nothing that was posted changes.

    \b
    Example:
      sparewatt ledger rebuild
    """
    _report(client.post("/ledger/rebuild", {}), as_json=as_json)


def _report(reply: ApiReply, *, as_json: bool) -> None:
    found = reply.parse(Audit)
    if as_json:
        output.print_json(reply.json())
    else:
        output.print_facts(_facts(found))
    if not found.in_order:
        raise CliError(
            "The books are not in order.",
            next_step="Wrong balances: 'sparewatt ledger rebuild'. Anything else is a bug; please report it.",
        )


def _facts(found: Audit) -> list[tuple[str, output.Cell | str]]:
    return [
        ("Books", "in order" if found.in_order else "NOT in order"),
        ("Sum of all postings", f"{found.sum_nano} (0 is right)"),
        ("Unbalanced causes", str(found.unbalanced_causes)),
        ("Open clearing accounts", str(found.open_clearing_accounts)),
        ("Wrong balances", str(found.wrong_balances)),
        ("Overdrawn accounts", str(found.overdrawn)),
    ]
