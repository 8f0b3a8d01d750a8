"""What the commands about this machine's node share: its data directory, and requests to the running agent."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError

R = TypeVar("R")

NOT_RUNNING = "No node runs here now; this counts from its next start."

data_option = click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path),
    help="The node's directory.  [default: ~/.local/share/sparewatt/node]",
)


def node_dir(given: Path | None) -> Path:
    from sparewatt.node.settings import default_data_dir

    return (given or default_data_dir()).expanduser().absolute()


def ask_agent(data_dir: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The agent's status after the request; None if no agent runs here."""
    from sparewatt.node.owner.control_socket import NodeNotRunning, ask

    try:
        answer = ask(data_dir, request)
    except NodeNotRunning:
        return None
    if "error" in answer:
        raise CliError(str(answer["error"]))
    status = answer.get("status")
    return status if isinstance(status, dict) else {}


def ask_running_agent(data_dir: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The same. Raises CliError if no agent runs here."""
    status = ask_agent(data_dir, request)
    if status is None:
        raise CliError(
            f"No node runs here ({data_dir}).",
            next_step="Start it: sparewatt node join URL --token T. If it runs elsewhere, give its --data.",
        )
    return status


def joined_network_options(command: Callable[..., R]) -> Callable[..., R]:
    """As `network_options`; the default address is that of the gateway which this machine's node has joined."""
    with_client = network_options(command)

    @functools.wraps(with_client)
    def with_gateway(*, base_url: str | None, **rest: Any) -> R:
        given = base_url or os.environ.get("SPAREWATT_BASE_URL")
        return with_client(base_url=given or _joined_gateway(rest.get("data_dir")), **rest)

    return with_gateway


def _joined_gateway(data_dir: Path | None) -> str | None:
    status = ask_agent(node_dir(data_dir), {"do": "status"})
    gateway = (status or {}).get("gateway")
    return gateway if isinstance(gateway, str) else None
