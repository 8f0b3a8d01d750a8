"""`sparewatt node`: lend this machine to a network. Here are the group and its commands `join`, `token` and `why`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of, path_with_query
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import data_option, joined_network_options, node_dir
from sparewatt.cli.node.earnings import earnings
from sparewatt.cli.node.leases import leases
from sparewatt.cli.node.owner_settings import drain, pause, price, resume, schedule
from sparewatt.cli.node.service import service
from sparewatt.cli.node.status import doctor, logs, status
from sparewatt.cli.param_types import NUMBER
from sparewatt.protocol.api.accounts import JoinToken
from sparewatt.protocol.api.nodes import NodeMatchReport


@click.group()
@examples("sparewatt node token", "sparewatt node join https://gateway.example --token join-sw-…")
def node() -> None:
    """Lend this machine's GPU to a network."""


for _command in (earnings, status, pause, resume, drain, schedule, price, leases, doctor, logs, service):
    node.add_command(_command)


@node.command("join")
@click.argument("gateway_url", metavar="URL", envvar="SPAREWATT_NODE_GATEWAY_URL")
@click.option("--token", metavar="T", help="Join token; needed once per node.  [env: SPAREWATT_NODE_TOKEN]")
@click.option("--backend", "backend_url", metavar="URL", help="The model server to use; 'auto' looks for one.")
@click.option(
    "--serve",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve this GGUF file (needs: pip install xllamacpp).",
)
@click.option("--serve-as", metavar="NAME", help="The model's name, if not the file's.")
@click.option("--serve-slots", type=int, help="Parallel answers of a served file.")
@click.option(
    "--server-fact",
    "server_facts",
    multiple=True,
    metavar="NAME=N",
    callback=lambda _context, _option, given: " ".join(given) or None,
    help="A fact of the model server that it does not report, as slots=64; may be repeated. 'auto' forgets them.",
)
@click.option(
    "--allow-fetch-host",
    "allow_fetch_hosts",
    multiple=True,
    metavar="HOST",
    callback=lambda _context, _option, given: " ".join(given) or None,
    help="Let this node fetch pictures from this public host; may be repeated. 'none' forgets them.",
)
@click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path),
    help="Where key and measurements are kept.  [default: ~/.local/share/sparewatt/node]",
)
@click.option("--name", help="The display name of this node.")
@click.option("--region", help="Where it is: a country or a group of them (DE, de-berlin, eu-west).")
@click.option("--gpu", help="The GPU's model, where it cannot be detected.")
@click.option("--vram-gb", type=NUMBER, help="Memory that the model server may use.")
@click.option("--tflops", type=NUMBER, help="Compute, as the datasheet has it: a claim; speeds are measured.")
@click.option("--hourly-usd", metavar="USD", help="What an hour of this machine costs.")
@click.option("--prompt-usd-per-mtok", metavar="USD", help="Price per million tokens read.")
@click.option("--completion-usd-per-mtok", metavar="USD", help="Price per million tokens written.")
@click.option("--speed-limit-tps", type=NUMBER, help="The most tokens per second that one answer may use.")
@click.option("--leases/--no-leases", default=None, help="Offer the machine for leases, or stop that.")
@click.option("--lease-wallet", metavar="ADDRESS", help="Serve no other provider than this wallet of yours.")
@click.option("--chain-url", metavar="URL", help="Check orders of leases by this chain's node; 'none' forgets it.")
@click.option(
    "--container-socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The Docker or podman socket that leases run on; 'auto' looks for one.",
)
@click.option(
    "--machine-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where all agents of this machine note what leases have of it; 'auto' is one place for all users.",
)
@click.option("--no-gpu-bench", "bench_gpu", flag_value=False, default=None, help="Do not measure the GPU itself.")
@click.option("--drain-s", type=NUMBER, help="How long to wait for running answers when asked to stop.")
@click.option("--insecure", is_flag=True, default=None, help="Allow plain http:// to another machine.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [node]).")
@json_option
@examples(
    "sparewatt node join https://gateway.example --token join-sw-… --backend http://127.0.0.1:8080",
    "sparewatt node join http://127.0.0.1:8484 --serve model.gguf",
)
def join(*, gateway_url: str, config: Path | None, as_json: bool, **flags: Any) -> None:
    """Join a network and serve its jobs until stopped (Ctrl-C or SIGTERM finishes running answers first).

    The node dials out: no port has to be open. Its key is made on first start. Name, region, prices and what it serves
    with are kept for the next join.
    """
    if flags["backend_url"] and flags["serve"]:
        raise click.UsageError("--backend fronts a server that runs, --serve starts one: give one of them.")
    import asyncio
    import json

    from sparewatt.core.errors import JoinRefused, StartupError
    from sparewatt.core.log import log_without_stderr
    from sparewatt.core.settings import build_settings, given_settings
    from sparewatt.machine.lifeline import die_with_parent
    from sparewatt.node.process import run_node
    from sparewatt.node.settings import NodeSettings, merge_saved_settings, read_saved_settings

    die_with_parent()
    flags["gateway_url"] = gateway_url
    given = given_settings(section="node", flags=flags, env=os.environ, file=config)
    saved = read_saved_settings(build_settings(NodeSettings, given, section="node").data_dir)
    settings = build_settings(NodeSettings, merge_saved_settings(given, saved), section="node")
    if warning := region_warning(settings.region):
        output.note(warning)
    log_without_stderr(settings.log_level)  # `run_node` opens the log file; the terminal gets sentences only

    def notify(text: str) -> None:
        click.echo(json.dumps({"message": text}) if as_json else text)

    try:
        asyncio.run(run_node(settings, notify=notify))
    except JoinRefused as refused:
        raise StartupError(f"The gateway refused this node: {refused.message}") from None


def region_warning(region: str) -> str | None:
    """Any text is allowed as a region, but only a place satisfies a policy with `region`."""
    from sparewatt.node.settings import REGION_DEFAULT
    from sparewatt.policy.regions import GROUPS, place_of

    if region == REGION_DEFAULT or place_of(region) is not None:
        return None
    return (
        f"Region {region!r} names no place, so jobs that are bound to a region will not come here. Write a country "
        f"(DE, de-berlin), or one of {', '.join(sorted(GROUPS))} (eu-west)."
    )


@node.command("token")
@click.option("-q", "--quiet", is_flag=True, help="Print the token only.")
@network_options
@examples("sparewatt node token", "sparewatt node join https://gateway.example --token $(sparewatt node token --quiet)")
def token(client: ApiClient, *, quiet: bool, as_json: bool) -> None:
    """Make a join token, good for one node and for 24 hours, and print the line that installs a node and joins.

    Only that line goes to stdout.
    """

    def show(made: JoinToken) -> None:
        join_line = made.join_line or f"sparewatt node join {client.root_url} --token {made.token}"
        output.print_lines([made.token if quiet else join_line])
        if not quiet:
            output.note("Good for one node. Run it on the machine that joins, in a Python environment of its own.")

    client.post("/join-tokens", {}).show(JoinToken, show, as_json=as_json)


@node.command("why")
@click.argument("wanted", metavar="[NAME_OR_ID]", required=False)
@click.option(
    "--last", type=click.IntRange(1, 2000), metavar="N", help="How many matches to look back.  [default: 1000]"
)
@click.option("--trust", is_flag=True, help="Its tier, record, rewards and checks instead, and what would change them.")
@data_option
@joined_network_options
@examples("sparewatt node why berlin-4090", "sparewatt node why --last 100", "sparewatt node why --trust")
def why(
    client: ApiClient, *, wanted: str | None, last: int | None, trust: bool, data_dir: Path | None, as_json: bool
) -> None:
    """Why a node gets jobs, or none: how it was ranked in the last matches. Without a name, this machine's node."""
    name = wanted or _own_address(node_dir(data_dir))
    if trust:
        from sparewatt.cli.node.trust import show_trust

        show_trust(client, name, as_json=as_json)
        return
    path = path_of("nodes", name, "why")
    client.get(path_with_query(path, {"last": last})).show(NodeMatchReport, _print_report, as_json=as_json)


def _print_report(report: NodeMatchReport) -> None:
    output.print_facts([("Node", report.name), ("ID", report.node)])
    print()
    output.print_lines(report.sentences)


def _own_address(data_dir: Path) -> str:
    """The address of this machine's node, by its key."""
    from sparewatt.node.identity import KEY_FILE
    from sparewatt.protocol.signing import SigningKey

    path = data_dir / KEY_FILE
    try:
        return SigningKey.read(path).address
    except (OSError, ValueError):
        raise CliError(
            f"No node has run on this machine ({path} holds no key).",
            next_step="Name the node: sparewatt node why NAME. 'sparewatt nodes' lists them.",
        ) from None
