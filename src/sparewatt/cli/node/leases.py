"""`sparewatt node leases on | off`: whether this machine's node offers leases.

A change goes to the running agent; without one, it is saved in the data directory, where the next agent reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import NOT_RUNNING, ask_agent, data_option, node_dir
from sparewatt.cli.param_types import ADDRESS

ON = "This node offers leases. 'sparewatt providers register NODE' makes it a provider, if it is none."
OFF = "This node offers no leases. If it is a provider, 'sparewatt providers status NODE maintenance' pauses it."


@click.group("leases")
@examples("sparewatt node leases on", "sparewatt node leases off")
def leases() -> None:
    """Whether this machine's node offers leases."""


@leases.command("on")
@click.option("--wallet", type=ADDRESS, help="Serve no other provider than this wallet of yours.")
@data_option
@json_option
@examples("sparewatt node leases on", "sparewatt node leases on --wallet 0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
def turn_on(*, wallet: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Offer leases. Then register the node: sparewatt providers register NODE."""
    _set_leases(data_dir, {"leases": True, "lease_wallet": wallet}, as_json=as_json)


@leases.command("off")
@data_option
@json_option
@examples("sparewatt node leases off")
def turn_off(*, data_dir: Path | None, as_json: bool) -> None:
    """Offer no leases. A provider that is registered stays so: pause it with 'sparewatt providers status'."""
    _set_leases(data_dir, {"leases": False, "lease_wallet": None}, as_json=as_json)


def _set_leases(data_dir: Path | None, change: dict[str, Any], *, as_json: bool) -> None:
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "leases", **change})
    if status is None:
        _save_for_next_start(folder, change)
    if as_json:
        output.print_json({"running": status is not None, **change})
        return
    text = ON if change["leases"] else OFF
    output.note(text if status is not None else f"{text} {NOT_RUNNING}")


def _save_for_next_start(folder: Path, change: dict[str, Any]) -> None:
    from sparewatt.machine.data_dir import make_private_dir, write_private
    from sparewatt.node.settings import SAVED_SETTINGS_FILE, read_saved_settings

    make_private_dir(folder)
    saved = msgspec.structs.replace(read_saved_settings(folder), **change)
    write_private(folder / SAVED_SETTINGS_FILE, msgspec.json.encode(saved))
