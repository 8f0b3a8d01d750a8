"""`sparewatt node doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import ExitCode
from sparewatt.cli.node.agent import data_option, node_dir

_MARKS = {
    "ok": output.Cell("ok", "#2DD4BF"),
    "warning": output.Cell("look", "#F59E0B"),
    "failure": output.Cell("WRONG", "bold #F87171"),
}


@click.command("doctor")
@click.argument("gateway_url", metavar="[URL]", required=False)
@click.option("--token", metavar="T", help="A join token, to look at its form; it is not used up.")
@click.option("--backend", "backend_url", metavar="URL", help="The model server to look at; else they are looked for.")
@click.option("--measure", is_flag=True, help="Also measure the GPU itself, where torch or CuPy is installed.")
@click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
@data_option
@json_option
def doctor(
    *,
    gateway_url: str | None,
    token: str | None,
    backend_url: str | None,
    measure: bool,
    insecure: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
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
    from sparewatt.node.doctor import run_diagnostics

    found = asyncio.run(
        run_diagnostics(
            node_dir(data_dir),
            gateway_url=gateway_url,
            token=token,
            backend_url=backend_url,
            insecure=insecure,
            measure=measure,
            clock=SystemClock(),
        )
    )
    if as_json:
        output.print_json(found)
    else:
        _print(found)
    if not found["ok"]:
        sys.exit(ExitCode.FAILURE)


def _print(found: dict[str, Any]) -> None:
    columns = [*output.left("", "WHAT"), *output.prose("FOUND", "WHAT TO DO")]
    rows = [[_MARKS[each["verdict"]], each["name"], each["found"], each.get("advice", "")] for each in found["checks"]]
    output.print_table(columns, rows)
    wrong = sum(each["verdict"] == "failure" for each in found["checks"])
    output.note("Nothing is wrong." if not wrong else f"{wrong} of {len(rows)} are wrong; begin with the first.")
