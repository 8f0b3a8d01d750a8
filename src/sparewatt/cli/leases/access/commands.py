"""The commands `lease logs`, `lease exec` and `lease connect`. What they do is imported when they are called."""

from __future__ import annotations

import click

from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import examples
from sparewatt.protocol.api.lease_access import LeaseSite

LOG_LINES_MAX = 10_000
wanted_argument = click.argument("wanted", metavar="ID_OR_NAME")


@click.command("logs")
@wanted_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the program ends for good.")
@click.option(
    "--tail",
    type=click.IntRange(0, LOG_LINES_MAX),
    help=f"Only the last so many lines; at most {LOG_LINES_MAX:,} are shown.",
)
@network_options
@examples("sparewatt lease logs trainer", "sparewatt lease logs trainer -f --tail 20")
def show_logs(client: ApiClient, *, wanted: str, follow: bool, tail: int | None, as_json: bool) -> None:
    """Show what the program of a lease wrote, stdout to stdout and stderr to stderr.

    With --json each piece is a JSON object on a line of its own.
    """
    from sparewatt.cli.leases.access.logs import print_logs

    print_logs(client, wanted, follow=follow, tail=tail, as_json=as_json)


@click.command("exec", context_settings={"ignore_unknown_options": True})
@wanted_argument
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
@click.option("--tty/--no-tty", default=None, help="With a terminal or without; by default as this command has one.")
@network_options
@examples("sparewatt lease exec trainer -- nvidia-smi", "sparewatt lease exec trainer -- sh")
def run_command(client: ApiClient, *, wanted: str, command: tuple[str, ...], tty: bool | None, as_json: bool) -> None:
    """Run a command in the container of a lease, and exit with its exit code.

    On a terminal it is interactive. Otherwise its input, output and errors are those of this command.
    """
    del as_json  # its output is the command's
    from sparewatt.cli.leases.access.remote_command import run_remote

    raise SystemExit(run_remote(client, wanted, command, tty=tty))


@click.command("publish")
@wanted_argument
@click.argument("port", type=click.IntRange(1, 65_535), required=False)
@click.option("--off", is_flag=True, help="Close the public address.")
@network_options
@examples("sparewatt lease publish trainer 8080", "sparewatt lease publish trainer --off")
def publish_port(client: ApiClient, *, wanted: str, port: int | None, off: bool, as_json: bool) -> None:
    """Give a port of a lease a public address, which everybody who knows it can visit, or close it.

    PORT is one that the order lists in its 'ports', and serves HTTP.
    """
    if (port is None) is not off:
        raise click.UsageError("Name a port, or say --off.")
    path = path_of("leases", wanted, "site")
    reply = client.delete(path) if port is None else client.post(path, {"port": port})
    reply.show(LeaseSite, lambda site: print(site.url or "It has no public address any more."), as_json=as_json)


@click.command("connect")
@wanted_argument
@click.argument("port", type=click.IntRange(1, 65_535))
@click.option("--local", "local_port", type=click.IntRange(0, 65_535), help="The port on this machine; else the same.")
@network_options
@examples("sparewatt lease connect trainer 8080", "sparewatt lease connect trainer 8080 --local 9000")
def connect_port(client: ApiClient, *, wanted: str, port: int, local_port: int | None, as_json: bool) -> None:
    """Open a port of a lease on this machine's loopback address, for any number of connections. Ctrl-C ends it.

    PORT is one that the order lists in its 'ports'.
    """
    from sparewatt.cli.leases.access.local_port import serve_port

    serve_port(client, wanted, port, local_port=local_port, as_json=as_json)
