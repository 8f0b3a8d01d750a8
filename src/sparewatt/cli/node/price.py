"""`sparewatt node price`: what this machine's node asks for, changed without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.node.agent import ask_agent, data_option, node_dir
from sparewatt.cli.node.status import describe_price


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
    given = {"hourly_usd": hourly, "prompt_usd_per_mtok": prompt, "completion_usd_per_mtok": completion}
    said = {name: value for name, value in given.items() if value is not None}
    if hourly is not None and len(said) > 1:
        raise click.UsageError("--prompt and --completion are set instead of --hourly: give the one or the others.")
    if hourly is None and len(said) < 2:
        raise click.UsageError("Give --hourly, or both --prompt and --completion.")
    _check(said)
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "price", **said})
    if status is None:
        _save_for_next_start(folder, said)
    if as_json:
        output.print_json({"running": status is not None, **said, "models": (status or {}).get("models", [])})
        return
    if status is None:
        output.note("Kept. No node runs here now; this counts from its next start.")
        return
    output.print_facts([("Price", describe_price(status))])
    columns = [*output.left("MODEL"), *output.right("$/1M READ", "$/1M WRITTEN")]
    output.print_table(columns, [_row(model) for model in status["models"]])


def _check(said: dict[str, str]) -> None:
    from sparewatt.core.errors import InvalidAmount
    from sparewatt.core.money import parse_usd

    try:
        for value in said.values():
            parse_usd(value)
    except InvalidAmount as error:
        raise CliError(error.message, exit_code=ExitCode.USAGE) from None


def _save_for_next_start(folder: Path, said: dict[str, str]) -> None:
    from sparewatt.machine.data_dir import make_private_dir, write_private
    from sparewatt.node.settings import PRICE_FIELDS, SAVED_SETTINGS_FILE, read_saved_settings

    make_private_dir(folder)
    terms = msgspec.structs.replace(read_saved_settings(folder), **{**dict.fromkeys(PRICE_FIELDS), **said})
    write_private(folder / SAVED_SETTINGS_FILE, msgspec.json.encode(terms))


def _row(model: dict[str, Any]) -> list[str]:
    from sparewatt.core.money import format_usd

    nano = (model["prompt_price_nano"], model["completion_price_nano"])
    return [model["id"], *(output.format_usd(format_usd(price)) for price in nano)]
