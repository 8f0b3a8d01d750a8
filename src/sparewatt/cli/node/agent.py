"""What the commands about this machine's node share: where it keeps its things, and how to ask the running agent."""

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


def data_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--data",
        "data_dir",
        type=click.Path(path_type=Path),
        help="The node's directory.  [default: ~/.local/share/sparewatt/node]",
    )(command)


def node_dir(given: Path | None) -> Path:
    from sparewatt.node.settings import default_data_dir

    return (given or default_data_dir()).expanduser().absolute()


def ask_agent(data_dir: Path, question: dict[str, Any]) -> dict[str, Any] | None:
    """Its status after that; None if no agent runs here."""
    from sparewatt.node.owner.control_socket import NodeNotRunning, ask

    try:
        answer = ask(data_dir, question)
    except NodeNotRunning:
        return None
    if "error" in answer:
        raise CliError(str(answer["error"]))
    status = answer.get("status")
    return status if isinstance(status, dict) else {}


def joined_network_options(command: Callable[..., R]) -> Callable[..., R]:
    """As `network_options`; where no address is given, that of the gateway that this machine's node has joined."""
    with_client = network_options(command)

    @functools.wraps(with_client)
    def with_gateway(*, base_url: str | None, **rest: Any) -> R:
        said = base_url or os.environ.get("SPAREWATT_BASE_URL")
        return with_client(base_url=said or _joined_gateway(rest.get("data_dir")), **rest)

    return with_gateway


def _joined_gateway(data_dir: Path | None) -> str | None:
    status = ask_agent(node_dir(data_dir), {"do": "status"})
    gateway = (status or {}).get("gateway")
    return gateway if isinstance(gateway, str) else None


def agent_not_running(data_dir: Path) -> CliError:
    return CliError(
        f"No node runs here ({data_dir}).",
        next_step="Start it: sparewatt node join URL --token T. If it runs elsewhere, give its --data.",
    )
