"""`sparewatt treasury`: the money that pays node owners for serving free credits."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import DefaultGroup
from sparewatt.cli.money.credits import id_option
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, amount_body
from sparewatt.protocol.api.credits import TreasuryBalance, TreasuryPosting, TreasuryReply


@click.group(cls=DefaultGroup, default="show")
def treasury() -> None:
    """Show or fund what turns promo income into payable income.

    \b
    Example:
      sparewatt treasury
      sparewatt treasury fund 100
    """


@treasury.command("show")
@network_options
def show(client: ApiClient, *, as_json: bool) -> None:
    """Show what is there, and how much of it becomes payable per day.

    \b
    Example:
      sparewatt treasury show
    """
    client.get("/treasury").show(TreasuryReply, _print_treasury, as_json=as_json)


@treasury.command("fund", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@id_option
@network_options
def fund(client: ApiClient, *, usd: str, reference: str | None, as_json: bool) -> None:
    """Put money aside for owners who serve free credits. For operators.

    \b
    Example:
      sparewatt treasury fund 100 --id november
    """
    reply = client.post("/treasury/fund", amount_body(usd, reference=reference))
    reply.show(TreasuryPosting, _print_funding, as_json=as_json)


def _print_treasury(reply: TreasuryReply) -> None:
    _print_balance(reply.data)
    if reply.data.balance_usd == "0":
        output.note("Empty: promo income stays unpaid until an operator runs 'sparewatt treasury fund USD'.")


def _print_funding(done: TreasuryPosting) -> None:
    output.note("Funded." if done.posted else "Done before, nothing changed.")
    _print_balance(done.treasury)


def _print_balance(balance: TreasuryBalance) -> None:
    output.print_facts(
        [
            ("Treasury", output.format_usd(balance.balance_usd)),
            ("Per day", f"at most {output.format_usd(balance.daily_budget_usd)} becomes payable"),
            ("Today", f"{output.format_usd(balance.redeemed_today_usd)} so far"),
        ]
    )
