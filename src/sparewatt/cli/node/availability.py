"""`sparewatt node pause | resume | drain | schedule`: when this machine's node works."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.node.agent import NOT_RUNNING, ask_agent, ask_running_agent, data_option, node_dir
from sparewatt.cli.output import Fact
from sparewatt.cli.param_types import DURATION, FiniteRange

if TYPE_CHECKING:
    from sparewatt.node.owner.owner_rules import OwnerRules

DRAIN_POLL_S = 0.3


@click.command("pause")
@click.option("--for", "for_s", type=DURATION, help="Come back by itself after this, e.g. 2h; else on 'resume'.")
@data_option
@json_option
def pause(*, for_s: float | None, data_dir: Path | None, as_json: bool) -> None:
    """Take no new jobs for a while ("gaming mode"). What runs is finished, and nobody thinks worse of the node.

    \b
    Example:
      sparewatt node pause
      sparewatt node pause --for 3h
    """
    from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S

    until = UNTIL_RESUMED_UNIX_S if for_s is None else time.time() + for_s
    _change_owner_rules(data_dir, {"paused_until_unix_s": until}, as_json=as_json, done="Paused.")


@click.command("resume")
@data_option
@json_option
def resume(*, data_dir: Path | None, as_json: bool) -> None:
    """Take jobs again. Hours and ceilings still count.

    \b
    Example:
      sparewatt node resume
    """
    _change_owner_rules(data_dir, {"paused_until_unix_s": 0.0}, as_json=as_json, done="Back to work.")


@click.command("schedule")
@click.option(
    "--between", multiple=True, metavar="HH:MM-HH:MM", help="Work only then; may be repeated, and span midnight."
)
@click.option("--zone", metavar="ZONE", help="Of those hours, e.g. Europe/Berlin.  [default: this machine's]")
@click.option("--always", is_flag=True, help="Work at all hours again.")
@click.option("--max-watts", type=FiniteRange(0, 1e5), help="Rest while the machine draws more; 0 takes it away.")
@click.option("--max-temperature", type=FiniteRange(0, 150), help="Rest while a GPU is hotter (°C); 0 takes it away.")
@data_option
@json_option
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
    """Set the hours in which the node works, and ceilings above which it rests by itself. Without options, show them.

    \b
    Example:
      sparewatt node schedule --between 22:00-07:00 --zone Europe/Berlin
      sparewatt node schedule --max-watts 300 --max-temperature 80
      sparewatt node schedule --always
    """
    from sparewatt.node.owner.working_hours import BadHours, parse_hours

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
    _change_owner_rules(data_dir, changes, as_json=as_json, done="Kept." if changes else "")


def _change_owner_rules(data_dir: Path | None, changes: dict[str, Any], *, as_json: bool, done: str) -> None:
    """Through the agent if it runs, else in its data directory, where it reads them when it starts."""
    from sparewatt.machine.data_dir import make_private_dir
    from sparewatt.node.owner.owner_rules import read_owner_rules, write_owner_rules

    folder = node_dir(data_dir)
    rules = msgspec.structs.replace(read_owner_rules(folder), **changes)
    written = msgspec.to_builtins(rules)
    status = ask_agent(folder, {"do": "wish", "wishes": written} if changes else {"do": "status"})
    if status is None and changes:
        make_private_dir(folder)
        write_owner_rules(folder, rules)
    if as_json:
        output.print_json({"running": status is not None, "wishes": written, "status": status})
        return
    output.print_facts(_facts(rules, status))
    if done:
        output.note(done if status is not None else f"{done} {NOT_RUNNING}")


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
@click.option("--no-wait", is_flag=True, help="Do not wait until it has ended.")
@data_option
@json_option
def drain(*, no_wait: bool, data_dir: Path | None, as_json: bool) -> None:
    """Finish what runs, take nothing new, then end the agent.

    \b
    Example:
      sparewatt node drain
    """
    folder = node_dir(data_dir)
    status = ask_running_agent(folder, {"do": "drain"})
    running = status["running"] + status["queued"]
    if not as_json:
        output.note(f"{running} answers are finished first." if running else "The node ends.")
    while not no_wait and ask_agent(folder, {"do": "status"}) is not None:
        time.sleep(DRAIN_POLL_S)
    if as_json:
        output.print_json({"running": running, "ended": not no_wait})
    elif not no_wait:
        output.note("It has ended.")
