"""`sparewatt treasury`: what there is for those who serve free credits."""

from __future__ import annotations

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.groups import DefaultGroup
from sparewatt.cli.money.credits import id_option
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, amount_body


class Treasury(msgspec.Struct):
    balance_usd: str = "0"
    daily_budget_usd: str = "0"
    redeemed_today_usd: str = "0"


class _Shown(msgspec.Struct):
    data: Treasury


class _Funded(msgspec.Struct):
    posted: bool
    treasury: Treasury


@click.group(cls=DefaultGroup, default="show")
def treasury() -> None:
    """Show or fund what turns promo income into payable income.

    \b
    Example:
      sparewatt treasury
      sparewatt treasury fund 100
    """


@treasury.command("show")
@json_option
@network_options
def show(client: ApiClient, *, as_json: bool) -> None:
    """Show what is there, and how much of it becomes payable per day.

    \b
    Example:
      sparewatt treasury show
    """
    reply = client.get("/treasury")
    if as_json:
        output.print_json(reply.json())
        return
    found = reply.parse(_Shown).data
    _print(found)
    if found.balance_usd == "0":
        output.note("Empty: promo income stays unpaid until an operator runs 'sparewatt treasury fund USD'.")


@treasury.command("fund", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@id_option
@json_option
@network_options
def fund(client: ApiClient, *, usd: str, reference: str | None, as_json: bool) -> None:
    """Put money aside for owners who serve free credits. For operators.

    \b
    Example:
      sparewatt treasury fund 100 --id november
    """
    reply = client.post("/treasury/fund", amount_body(usd, reference=reference))
    if as_json:
        output.print_json(reply.json())
        return
    told = reply.parse(_Funded)
    output.note("Funded." if told.posted else "Done before, nothing changed.")
    _print(told.treasury)


def _print(found: Treasury) -> None:
    output.print_facts(
        [
            ("Treasury", output.format_usd(found.balance_usd)),
            ("Per day", f"at most {output.format_usd(found.daily_budget_usd)} becomes payable"),
            ("Today", f"{output.format_usd(found.redeemed_today_usd)} so far"),
        ]
    )
