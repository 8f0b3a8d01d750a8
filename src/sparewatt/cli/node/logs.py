"""`sparewatt node logs`: the log file of this machine's agent."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from pathlib import Path

import click

from sparewatt.cli import output
from sparewatt.cli.errors import CliError
from sparewatt.cli.node.agent import data_option, node_dir

FOLLOW_S = 0.3
_SHOWN = ("t", "level", "logger", "event", "text")


@click.command("logs")
@click.option("-n", "--lines", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As it stands in the file: an object a line.")
@data_option
def logs(*, lines: int, follow: bool, as_json: bool, data_dir: Path | None) -> None:
    """Show the agent's log. It holds ids and counts, never a prompt or an answer.

    \b
    Example:
      sparewatt node logs -n 200
      sparewatt node logs --follow
    """
    from sparewatt.node.log_file import follow_lines, last_lines

    folder = node_dir(data_dir)
    try:
        for line in last_lines(folder, lines):
            print(line if as_json else format_log_line(line))
    except FileNotFoundError:
        raise CliError(
            f"There is no log in {folder}.",
            next_step="A node writes one when it runs. Give its --data if it is elsewhere.",
        ) from None
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            for line in follow_lines(folder, wait=lambda: time.sleep(FOLLOW_S)):
                print(line if as_json else format_log_line(line), flush=True)


def format_log_line(line: str) -> str:
    """Time, event and fields of a line of JSON; any other line as it is."""
    try:
        entry = json.loads(line)
        when = dt.datetime.fromtimestamp(entry["t"]).astimezone()
    except (ValueError, KeyError, TypeError, OverflowError):
        return output.clean(line)
    event = entry.get("text") or entry.get("event", "")
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _SHOWN)
    mark = "" if entry.get("level") == "info" else f"{str(entry.get('level')).upper()} "
    return output.clean(f"{when:%Y-%m-%d %H:%M:%S}  {mark}{event}  {fields}".rstrip())
