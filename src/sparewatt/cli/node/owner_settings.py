"""`sparewatt node pause | resume | drain | schedule | price`: when this machine's node works, and at which price.

A change goes to the running agent; without one, it is saved in the data directory, where the next agent reads it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import NOT_RUNNING, ask_agent, ask_running_agent, data_option, node_dir
from sparewatt.cli.node.departure import change_departure, require_no_leases
from sparewatt.cli.node.status import describe_price
from sparewatt.cli.output import Column, Fact, left, right
from sparewatt.cli.param_types import DURATION, MOMENT, FiniteRange
from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import format_usd, parse_usd

if TYPE_CHECKING:
    from sparewatt.node.owner.owner_rules import OwnerRules


DRAIN_POLL_S = 0.3


@click.command("pause")
@click.option("--for", "for_s", type=DURATION, help="Resume after this time, e.g. 2h; else on 'node resume'.")
@data_option
@json_option
@examples("sparewatt node pause", "sparewatt node pause --for 3h")
def pause(*, for_s: float | None, data_dir: Path | None, as_json: bool) -> None:
    """Take no new jobs for a while ("gaming mode"). Running jobs are finished, and its reputation does not suffer."""
    from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S

    until = UNTIL_RESUMED_UNIX_S if for_s is None else time.time() + for_s
    _change_owner_rules(data_dir, {"paused_until_unix_s": until}, as_json=as_json, confirmation="Paused.")


@click.command("resume")
@data_option
@json_option
@examples("sparewatt node resume")
def resume(*, data_dir: Path | None, as_json: bool) -> None:
    """Take jobs again. Hours and limits still apply."""
    _change_owner_rules(data_dir, {"paused_until_unix_s": 0.0}, as_json=as_json, confirmation="Back to work.")


@click.command("schedule")
@click.option(
    "--between", multiple=True, metavar="HH:MM-HH:MM", help="Work only then; may be repeated, and span midnight."
)
@click.option("--zone", metavar="ZONE", help="Of those hours, e.g. Europe/Berlin.  [default: this machine's]")
@click.option("--always", is_flag=True, help="Work at all hours again.")
@click.option("--max-watts", type=FiniteRange(0, 1e5), help="Pause while the machine draws more; 0 removes it.")
@click.option("--max-temperature", type=FiniteRange(0, 150), help="Pause while a GPU is hotter (°C); 0 removes it.")
@data_option
@json_option
@examples(
    "sparewatt node schedule --between 22:00-07:00 --zone Europe/Berlin",
    "sparewatt node schedule --max-watts 300 --max-temperature 80",
    "sparewatt node schedule --always",
)
def schedule(
    *,
    between: tuple[str, ...],
    zone: str | None,
    always: bool,
    max_watts: float | None,
    max_temperature: float | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Set the hours in which the node works, and above which power and heat it pauses. Without options, show them."""
    from sparewatt.node.owner.owner_rules import BadHours, parse_hours

    if always and between:
        raise click.UsageError("--always and --between say opposite things: give one of them.")
    if zone is not None and not between:
        raise click.UsageError("--zone belongs to --between.")
    changes: dict[str, Any] = {}
    try:
        if between or always:
            changes["hours"] = parse_hours(between, zone) if between else None
    except BadHours as error:
        raise CliError(str(error), exit_code=ExitCode.USAGE) from None
    if max_watts is not None:
        changes["watts_max"] = max_watts or None
    if max_temperature is not None:
        changes["temperature_max_c"] = max_temperature or None
    _change_owner_rules(data_dir, changes, as_json=as_json, confirmation="Saved." if changes else "")


def _change_owner_rules(data_dir: Path | None, changes: dict[str, Any], *, as_json: bool, confirmation: str) -> None:
    """Through the agent if it runs, else in its data directory, where it reads them when it starts."""
    from sparewatt.machine.data_dir import make_private_dir
    from sparewatt.node.owner.owner_rules import read_owner_rules, write_owner_rules

    folder = node_dir(data_dir)
    rules = msgspec.structs.replace(read_owner_rules(folder), **changes)
    rules_json = msgspec.to_builtins(rules)
    status = ask_agent(folder, {"do": "wish", "wishes": rules_json} if changes else {"do": "status"})
    if status is None and changes:
        make_private_dir(folder)
        write_owner_rules(folder, rules)
    if as_json:
        output.print_json({"running": status is not None, "wishes": rules_json, "status": status})
        return
    output.print_facts(_facts(rules, status))
    if confirmation:
        output.note(confirmation if status is not None else f"{confirmation} {NOT_RUNNING}")


def _facts(rules: OwnerRules, status: dict[str, Any] | None) -> list[Fact]:
    facts: list[Fact] = [("State", output.state_cell(status["state"]) if status else "not running")]
    if status and status["paused"]:
        running = f"; {status['running']} running are finished" if status["running"] else ""
        facts.append(("Paused", f"{status['paused']}{running}"))
    return [
        *facts,
        ("Hours", str(rules.hours) if rules.hours else "always"),
        ("At most", f"{rules.watts_max:g} W" if rules.watts_max else "no ceiling on power"),
        ("", f"{rules.temperature_max_c:g} °C" if rules.temperature_max_c else "no ceiling on temperature"),
    ]


@click.command("drain")
@click.option("--by", "by_unix_s", type=MOMENT, help="Give leases notice, and have them leave by then.")
@click.option("--off", is_flag=True, help="Leases stay after all, and new ones may come.")
@click.option("--anyway", is_flag=True, help="Stop the agent although leases run here, which costs their bonds.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@data_option
@json_option
@examples("sparewatt node drain", "sparewatt node drain --by 18:30", "sparewatt node drain --off")
def drain(
    *, by_unix_s: float | None, off: bool, anyway: bool, no_wait: bool, data_dir: Path | None, as_json: bool
) -> None:
    """Finish running jobs, take no new ones, then stop the agent.

    With --by the agent goes on: it takes no new leases, gives notice on chain to those that run, and has each go on
    with another provider once its notice is over.
    """
    folder = node_dir(data_dir)
    if by_unix_s is not None or off:
        if by_unix_s is not None and off:
            raise click.UsageError("--by and --off say opposite things: give one of them.")
        change_departure(folder, by_unix_s, as_json=as_json)
        return
    if not anyway:
        require_no_leases(ask_running_agent(folder, {"do": "status"}))
    status = ask_running_agent(folder, {"do": "drain"})
    running = status["running"] + status["queued"]
    if not as_json:
        output.note(f"{running} answers are finished first." if running else "The node ends.")
    while not no_wait and ask_agent(folder, {"do": "status"}) is not None:
        time.sleep(DRAIN_POLL_S)
    if as_json:
        output.print_json({"running": running, "ended": not no_wait})
    elif not no_wait:
        output.note("The agent has stopped.")


@click.group("price")
@examples("sparewatt node price set --hourly 0.25")
def price() -> None:
    """The prices of this machine's node."""


@price.command("set")
@click.option("--hourly", metavar="USD", help="What an hour of this machine costs; sets the prices per token.")
@click.option("--prompt", metavar="USD", help="Per million tokens read, instead; with --completion.")
@click.option("--completion", metavar="USD", help="Per million tokens written, instead; with --prompt.")
@data_option
@json_option
@examples("sparewatt node price set --hourly 0.25", "sparewatt node price set --prompt 0.05 --completion 0.20")
def set_price(
    *, hourly: str | None, prompt: str | None, completion: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Set the prices of the node. They apply to new jobs; running jobs keep the price they began with."""
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
        output.note(f"Saved. {NOT_RUNNING}")
    else:
        _print_prices(status)


def _save_for_next_start(folder: Path, prices: dict[str, str]) -> None:
    from sparewatt.machine.data_dir import make_private_dir, write_private
    from sparewatt.node.settings import PRICE_FIELDS, SAVED_SETTINGS_FILE, read_saved_settings

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
