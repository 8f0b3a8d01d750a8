"""`sparewatt trust`: compute again, on this machine, what a network says of its nodes, or have it tried again."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import examples
from sparewatt.cli.verdicts import replay_verdict
from sparewatt.protocol.api.checks import CheckVerdict


@click.group()
@examples("sparewatt trust replay verdict_5k0wq2", "sparewatt trust retry verdict_5k0wq2")
def trust() -> None:
    """Check, here, what the network says about trust."""


@trust.command("replay")
@click.argument("what", metavar="VERDICT")
@network_options
@examples("sparewatt trust replay verdict_5k0wq2")
def replay(client: ApiClient, *, what: str, as_json: bool) -> None:
    """Compute a verdict again from its published inputs, and compare."""
    replay_verdict(client, what, as_json=as_json)


@trust.command("retry")
@click.argument("verdict")
@network_options
@examples("sparewatt trust retry verdict_5k0wq2")
def retry(client: ApiClient, *, verdict: str, as_json: bool) -> None:
    """Have a failed check of your node decided by a node that had no part in it. Once for each verdict."""

    def show(found: CheckVerdict) -> None:
        words = "The node was right: the verdict is undone." if found.result == "passed" else "The verdict stands."
        output.print_lines([f"{words} ({found.id})"])

    client.post(path_of("verdicts", verdict, "retrial"), {}).show(CheckVerdict, show, as_json=as_json)
