"""`sparewatt node price`: what this machine's node charges, changed without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.node.agent import NOT_RUNNING, ask_agent, data_option, node_dir
from sparewatt.cli.node.status import describe_price
from sparewatt.cli.output import Column, left, right
from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import format_usd, parse_usd


@click.group("price")
def price() -> None:
    """What this machine's node asks for.

    \b
    Example:
      sparewatt node price set --hourly 0.25
    """


@price.command("set")
@click.option("--hourly", metavar="USD", help="What an hour of this machine costs; prices per token follow from it.")
@click.option("--prompt", metavar="USD", help="Per million tokens read, instead; with --completion.")
@click.option("--completion", metavar="USD", help="Per million tokens written, instead; with --prompt.")
@data_option
@json_option
def set_price(
    *, hourly: str | None, prompt: str | None, completion: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Set what the node asks for. It counts for the next job; those that run cost what they began with.

    \b
    Example:
      sparewatt node price set --hourly 0.25
      sparewatt node price set --prompt 0.05 --completion 0.20
    """
    options = {"hourly_usd": hourly, "prompt_usd_per_mtok": prompt, "completion_usd_per_mtok": completion}
    prices = {name: value for name, value in options.items() if value is not None}
    if hourly is not None and len(prices) > 1:
        raise click.UsageError("--prompt and --completion are set instead of --hourly: give the one or the others.")
    if hourly is None and len(prices) < 2:
        raise click.UsageError("Give --hourly, or both --prompt and --completion.")
    try:
        for value in prices.values():
            parse_usd(value)
    except InvalidAmount as error:
        raise CliError(error.message, exit_code=ExitCode.USAGE) from None
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "price", **prices})
    if status is None:
        _save_for_next_start(folder, prices)
    if as_json:
        output.print_json({"running": status is not None, **prices, "models": (status or {}).get("models", [])})
    elif status is None:
        output.note(f"Kept. {NOT_RUNNING}")
    else:
        _print_prices(status)


def _save_for_next_start(folder: Path, prices: dict[str, str]) -> None:
    from sparewatt.machine.data_dir import make_private_dir, write_private
    from sparewatt.node.saved_settings import PRICE_FIELDS, SAVED_SETTINGS_FILE, read_saved_settings

    make_private_dir(folder)
    saved = msgspec.structs.replace(read_saved_settings(folder), **{**dict.fromkeys(PRICE_FIELDS), **prices})
    write_private(folder / SAVED_SETTINGS_FILE, msgspec.json.encode(saved))


def _print_prices(status: dict[str, Any]) -> None:
    output.print_facts([("Price", describe_price(status))])
    columns: list[Column[dict[str, Any]]] = [
        left("MODEL", lambda model: model["id"]),
        right("$/1M READ", lambda model: output.format_usd(format_usd(model["prompt_price_nano"]))),
        right("$/1M WRITTEN", lambda model: output.format_usd(format_usd(model["completion_price_nano"]))),
    ]
    output.print_table(columns, status["models"])
