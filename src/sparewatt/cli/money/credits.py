"""`sparewatt credits`: what an account has to spend, and how it gets more."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.groups import DefaultGroup
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, amount_body, path_with_query
from sparewatt.cli.param_types import NUMBER

id_option = click.option(
    "--id", "reference", metavar="ID", help="A name for this, so that doing it twice does it once."
)


class Credits(msgspec.Struct):
    balance_usd: str = "0"
    promo_usd: str = "0"
    paid_usd: str = "0"
    reserved_usd: str = "0"
    total_usage: float = 0.0
    promo_expires_at: float | None = None


class Shown(msgspec.Struct):
    data: Credits


class _Moved(msgspec.Struct):
    account: str
    posted: bool
    credits: Credits


@click.group("credits", cls=DefaultGroup, default="balance")
def credits_() -> None:
    """Show what you have to spend, and get more.

    \b
    Example:
      sparewatt credits
      sparewatt credits deposit 5
    """


@credits_.command("balance")
@click.option("--account", metavar="ID_OR_EMAIL", help="Of somebody else; for operators.")
@json_option
@network_options
def balance(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """Show your credits: free ones, which are spent first, and paid ones.

    \b
    Example:
      sparewatt credits balance
    """
    reply = client.get(path_with_query("/credits", {"account": account}))
    if as_json:
        output.print_json(reply.json())
        return
    found = reply.parse(Shown).data
    output.print_facts(_facts(found))
    if found.balance_usd == "0":
        output.note("Nothing left to spend. 'sparewatt credits deposit USD' adds some, or ask the network's operator.")


@credits_.command("grant", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("account", metavar="ID_OR_EMAIL")
@click.argument("usd", metavar="USD")
@click.option("--days", type=NUMBER, help="How long they last.  [default: the network's setting]")
@click.option("--memo", help="Why; kept with it.")
@id_option
@json_option
@network_options
def grant(
    client: ApiClient,
    *,
    account: str,
    usd: str,
    days: float | None,
    memo: str | None,
    reference: str | None,
    as_json: bool,
) -> None:
    """Give an account free credits. For operators.

    \b
    Example:
      sparewatt credits grant ann@example.com 5 --days 30 --id welcome-ann
    """
    body = amount_body(usd, reference=reference) | {"account": account, "days": days, "memo": memo}
    _print_result(client.post("/credits/grant", body).json(), verb="Granted", usd=usd, as_json=as_json)


@credits_.command("deposit", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("usd", metavar="USD")
@click.option("--by", "adapter", default="test", show_default=True, help="The rail that the money came by.")
@id_option
@json_option
@network_options
def deposit(client: ApiClient, *, usd: str, adapter: str, reference: str | None, as_json: bool) -> None:
    """Add paid credits to your account. On a network of your own, test money is enough.

    With --by chain they come out of your account's address on the network's chain, into its settlement contract.

    \b
    Example:
      sparewatt credits deposit 5
      sparewatt credits deposit 5 --by chain
    """
    body = amount_body(usd, reference=reference) | {"adapter": adapter}
    _print_result(client.post("/credits/deposit", body).json(), verb="Deposited", usd=usd, as_json=as_json)


def _print_result(told: Any, *, verb: str, usd: str, as_json: bool) -> None:
    if as_json:
        output.print_json(told)
        return
    moved = msgspec.convert(told, _Moved)
    has = f"{moved.account} now has {output.format_usd(moved.credits.balance_usd)}."
    output.print_lines(
        [
            f"{verb} {output.format_usd(usd.removeprefix('$'))}. {has}"
            if moved.posted
            else f"Done before, nothing changed. {has}"
        ]
    )


def format_time_left(seconds: float) -> str:
    """In days from two on, else in hours."""
    hours = int(seconds // 3600)
    if hours >= 48:
        return f"in {round(hours / 24)} days"
    return f"in {hours} hour{'s' if hours > 1 else ''}" if hours >= 1 else "within the hour"


def _facts(found: Credits) -> list[tuple[str, output.Cell | str]]:
    ends = found.promo_expires_at
    expiry = "" if ends is None else f", the next expire {format_time_left(ends - time.time())}"
    return [
        ("Balance", f"${found.balance_usd}"),
        ("Free", f"${found.promo_usd} (spent first{expiry})"),
        ("Paid", f"${found.paid_usd}"),
        ("Reserved", f"{output.format_usd(found.reserved_usd)} of it, by gateways for your requests"),
        ("Spent", f"{output.format_usd(found.total_usage)} so far"),
    ]
