"""`sparewatt node drain --by TIME | --off`: the owner wants the machine back, and its leases go on elsewhere."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from sparewatt.cli import output
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.node.agent import ask_running_agent
from sparewatt.cli.output import Column, left

Json = dict[str, Any]
ID_CHARS = 18
LEAVING = (
    "No new leases come. Those that run leave as shown, after the notice they were promised: another provider goes "
    "on with them, and your bond stays whole. 'sparewatt node drain --off' ends this."
)
STAYING = "Leases stay, and new ones may come. A notice that is on the chain stays there; it obliges nobody."


def change_departure(folder: Path, by_unix_s: float | None, *, as_json: bool) -> None:
    """None: leases stay after all."""
    status = ask_running_agent(folder, {"do": "leave", "leave_by_unix_s": by_unix_s})
    departure = status["lease_market"]["departure"]
    if as_json:
        output.print_json(departure)
        return
    if departure["leases"]:
        output.print_table(_COLUMNS, departure["leases"])
    output.note(STAYING if by_unix_s is None else LEAVING)


def require_no_leases(status: Json) -> None:
    """Raises CliError: an agent that stops says nothing of its leases any more, and they are moved at its cost."""
    count = len(status.get("lease_market", {}).get("departure", {}).get("leases", ()))
    if count:
        raise CliError(
            f"{count} {'lease runs' if count == 1 else 'leases run'} here. Without its agent a lease is moved as DOWN, "
            "and its bond goes to the renter. 'sparewatt node drain --by TIME' gives notice first; --anyway stops now.",
            exit_code=ExitCode.FAILURE,
        )


def _time(unix_s: float | None) -> str:
    return "" if unix_s is None else f"{dt.datetime.fromtimestamp(unix_s).astimezone():%Y-%m-%d %H:%M}"


_COLUMNS: list[Column[Json]] = [
    left("lease", lambda lease: lease["order"][:ID_CHARS]),
    left("state", lambda lease: lease["state"]),
    left("notice ends", lambda lease: _time(lease["notice_ends_at"]) or "not given yet"),
    left("leaves", lambda lease: _time(lease["leaves_at"])),
]
