"""`sparewatt node doctor`: looks for what is wrong on this machine, and says what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import ExitCode
from sparewatt.cli.node.agent import data_option, node_dir
from sparewatt.cli.output import Cell, Column, left, prose

_MARKS = {
    "ok": Cell("ok", "#2DD4BF"),
    "warning": Cell("look", "#F59E0B"),
    "failure": Cell("WRONG", "bold #F87171"),
}


@click.command("doctor")
@click.argument("gateway_url", metavar="[URL]", required=False)
@click.option("--token", metavar="T", help="A join token, to look at its form; it is not used up.")
@click.option("--backend", "backend_url", metavar="URL", help="The model server to look at; else they are looked for.")
@click.option("--measure", is_flag=True, help="Also measure the GPU itself, where torch or CuPy is installed.")
@click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
@data_option
@json_option
def doctor(*, data_dir: Path | None, as_json: bool, **options: Any) -> None:
    """Look for what is wrong: gateway, TLS, clock, version, model server, GPU driver, memory, disk, key, agent.

    Says what it found in plain words and what to do. The gateway is that of the running node, or the URL given. Ends
    with status 1 if something is wrong.

    \b
    Example:
      sparewatt node doctor
      sparewatt node doctor https://gateway.example --token join-sw-…
      sparewatt node doctor --measure --json
    """
    import asyncio

    from sparewatt.core.clock import SystemClock
    from sparewatt.node.doctor.diagnostics import run_diagnostics

    found = asyncio.run(run_diagnostics(node_dir(data_dir), **options, clock=SystemClock()))
    if as_json:
        output.print_json(found)
    else:
        _print_checks(found["checks"])
    if not found["ok"]:
        sys.exit(ExitCode.FAILURE)


def _print_checks(checks: list[dict[str, Any]]) -> None:
    columns: list[Column[dict[str, Any]]] = [
        left("", lambda check: _MARKS[check["verdict"]]),
        left("WHAT", lambda check: check["name"]),
        prose("FOUND", lambda check: check["found"]),
        prose("WHAT TO DO", lambda check: check.get("advice", "")),
    ]
    output.print_table(columns, checks)
    wrong = sum(check["verdict"] == "failure" for check in checks)
    output.note("Nothing is wrong." if not wrong else f"{wrong} of {len(checks)} are wrong; begin with the first.")
