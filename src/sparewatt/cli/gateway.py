"""`sparewatt gateway`: run the endpoint that clients call, make the first key, and print a systemd unit.

Also how commands find the database of a network that runs on this machine.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sparewatt.cli.groups import examples
from sparewatt.cli.param_types import NUMBER
from sparewatt.cli.routing import RANKINGS

if TYPE_CHECKING:
    from sparewatt.gateway.settings import GatewaySettings


POSTGRES = "postgres"
ENV_FILE = Path("/etc/sparewatt/gateway.env")
DATA = Path("/var/lib/sparewatt")
STOP_MORE_S = 30
"""Time after the drain to write the rest of the journal into the books and to stop the database."""


def gateway_data_dir(data: Path | None) -> Path:
    """The gateway's data directory: by the option, the environment, or the gateway's default."""
    from sparewatt.gateway.settings import GatewaySettings

    return Path(data or os.environ.get("SPAREWATT_GATEWAY_DATA") or GatewaySettings().data).expanduser()


@asynccontextmanager
async def network_database(
    *, database_url: str | None, data: Path | None, may_make: bool = False
) -> AsyncIterator[str]:
    """Its connection string. A Postgres of the data directory that does not run is started for the duration."""
    from sparewatt.postgres.server import reachable_postgres

    if not database_url and not (data is not None and (data / POSTGRES).exists()):
        database_url = os.environ.get("DATABASE_URL") or os.environ.get("SPAREWATT_GATEWAY_DATABASE_URL")
    if database_url:
        yield database_url
        return
    async with reachable_postgres(gateway_data_dir(data) / POSTGRES, may_make=may_make) as dsn:
        yield dsn


@click.group()
@examples(
    "sparewatt gateway run",
    "sparewatt gateway run --host 0.0.0.0 --port 443 --public-url https://gateway.example \\",
    "  --tls-cert fullchain.pem --tls-key privkey.pem",
)
def gateway() -> None:
    """Run the endpoint that clients call and nodes join."""


@gateway.command("run")
@click.option("--database-url", metavar="URL", help="Postgres; without one it runs its own.  [env: DATABASE_URL]")
@click.option("--host", metavar="IP", help="Address to listen on (loopback).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--port-file", type=click.Path(path_type=Path), help="Write the port here once listening.")
@click.option("--processes", type=click.IntRange(1, 64), help="Processes that share the port, a core each (1).")
@click.option("--link-port", type=click.IntRange(1, 65535), help="First of the processes' ports for nodes.")
@click.option("--metrics/--no-metrics", default=None, help="Metrics for Prometheus on a second port (on).")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="That port (9484, else a free one); 0: a free one.")
@click.option("--metrics-host", metavar="IP", help="Its address: loopback, or of a private network.")
@click.option("--metrics-port-file", type=click.Path(path_type=Path), help="Write that port here once listening.")
@click.option("--metrics-by-node", is_flag=True, default=None, help="Metrics of each node, too.")
@click.option("--request-log", is_flag=True, default=None, help="A line in the log for every request, no content.")
@click.option("--public-url", metavar="URL", help="The address that nodes and clients use, if another.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain (PEM); read again on change.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key (PEM, no passphrase).")
@click.option("--behind-proxy", is_flag=True, default=None, help="Take clients' addresses from a TLS proxy in front.")
@click.option("--sites-host", metavar="NAME", help="Names below it lead to public sites of leases.")
@click.option("--trusted-proxies", metavar="NETS", help="Where that proxy may be (this machine, private networks).")
@click.option("--chain-url", metavar="URL", help="JSON-RPC endpoint of the network's chain.  [env: CHAIN_URL]")
@click.option("--heartbeat-s", type=NUMBER, help="Seconds between a node's reports.")
@click.option("--suspect-after-missed", type=int, help="Missed heartbeats until a node is suspect: a last resort.")
@click.option("--offline-after-missed", type=int, help="Missed heartbeats until a node is offline.")
@click.option("--nodes-per-account", type=int, help="The most nodes that one account may have (500).")
@click.option("--models-per-account", type=int, help="The most models on all its connected nodes together (1000).")
@click.option("--models-per-node", type=int, help="The most models on one node (200).")
@click.option(
    "--first-token-floor-s", type=NUMBER, help="The shortest wait for a first token if no other node can help."
)
@click.option("--idle-s", type=NUMBER, help="Seconds without a token after which a node counts as lost.")
@click.option("--drain-s", type=NUMBER, help="How long to wait for running answers when stopped.")
@click.option("--policy", type=click.Choice(RANKINGS), help="How nodes are chosen by default.")
@click.option("--data", type=click.Path(path_type=Path), help="Where secret, journals and own Postgres are kept.")
@click.option("--signup", type=click.Choice(["open", "invite", "closed"]), help="Who may sign up.")
@click.option("--development", is_flag=True, default=None, help="Users may deposit test money; never in public.")
@click.option("--signup-credit-usd", metavar="USD", help="Free credits of a new account.")
@click.option("--price-cap-usd-per-mtok", metavar="USD", help="The most that a request without max_price pays per 1M.")
@click.option("--treasury-daily-usd", metavar="USD", help="What serving free credits may earn per day, in all.")
@click.option("--uptime-credit-daily-usd", metavar="USD", help="What leases below 99.9 % are credited per day, in all.")
@click.option("--checks/--no-checks", default=None, help="Whether answers of nodes are checked (they are).")
@click.option("--checks-daily-usd", metavar="USD", help="The most that checks may cost the network per day (1).")
@click.option("--own-accounts", metavar="IDS", help="Accounts whose nodes are trusted, separated by commas.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [gateway]).")
@examples(
    "sparewatt gateway run --port 8484",
    "DATABASE_URL=postgresql://… sparewatt gateway run --behind-proxy --public-url https://gateway.example",
)
def run(*, config: Path | None, **flags: Any) -> None:
    """Serve until stopped (Ctrl-C or SIGTERM finishes running answers first).

    It listens on this machine alone; an address that others can reach needs TLS, its own or a proxy's.
    """
    import asyncio

    from sparewatt.core.log import log_to_stderr
    from sparewatt.core.settings import load_settings
    from sparewatt.gateway.process import run_gateway
    from sparewatt.gateway.processes import run_processes
    from sparewatt.gateway.settings import GatewaySettings
    from sparewatt.machine.lifeline import die_with_parent

    die_with_parent()
    flags["database_url"] = flags["database_url"] or os.environ.get("DATABASE_URL") or None
    flags["chain_url"] = flags["chain_url"] or os.environ.get("CHAIN_URL") or None
    flags["secret"] = os.environ.get("SPAREWATT_SECRET") or None
    settings = load_settings(GatewaySettings, section="gateway", flags=flags, env=os.environ, file=config)
    log_to_stderr(settings.log_level)
    if settings.processes > 1:
        asyncio.run(run_processes(settings))
        return
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(run_gateway(settings))


@gateway.command("process", hidden=True)
def process() -> None:
    """One of several processes of a gateway. Its parent starts it and writes its assignment to its stdin."""
    import asyncio
    import sys

    import msgspec

    from sparewatt.core.errors import StartupError
    from sparewatt.core.log import log_to_stderr
    from sparewatt.gateway.process import run_gateway
    from sparewatt.gateway.processes import read_assignment
    from sparewatt.machine.lifeline import die_with_parent

    die_with_parent()
    try:
        settings, slot = read_assignment(sys.stdin.buffer.read())
    except msgspec.DecodeError:
        raise StartupError("'gateway run --processes N' starts these, not a person.") from None
    log_to_stderr(settings.log_level, process=slot.number + 1)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(run_gateway(settings, slot))


@gateway.command("operator-key")
@click.option("--database-url", metavar="URL", help="The network's Postgres.  [env: DATABASE_URL]")
@click.option("--data", type=click.Path(path_type=Path), help="The gateway's data directory, if Postgres is its own.")
@examples("export SPAREWATT_API_KEY=$(sparewatt gateway operator-key)")
def operator_key(*, database_url: str | None, data: Path | None) -> None:
    """Make a key with every scope for the network's operator. Only the key goes to stdout.

    For the first start of a network: access to its database is enough, and no gateway has to run.
    """
    import asyncio

    async def make() -> str:
        async with network_database(database_url=database_url, data=data) as dsn:
            return await _make_operator_key(dsn)

    print(asyncio.run(make()))


async def _make_operator_key(database_url: str) -> str:
    from sparewatt.accounts.keys import KeyRing, KeyService
    from sparewatt.accounts.principal import SCOPES
    from sparewatt.core.ids import NETWORK_ACCOUNT
    from sparewatt.core.rng import SystemRng
    from sparewatt.store.database import Database, KeyTerms

    database = await Database.connect(database_url)
    try:
        service = KeyService(database, KeyRing(), rng=SystemRng())
        _, secret = await service.create(NETWORK_ACCOUNT, terms=KeyTerms(name="operator key"), scopes=SCOPES)
        return secret
    finally:
        await database.close()


def _fast_loop() -> Any:
    """uvloop if it is installed; asyncio's own loop works as well, slower."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@gateway.command("service", context_settings={"ignore_unknown_options": True})
@click.option("--user", default="sparewatt", show_default=True, help="The account it runs under; make it first.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, show_default=True, help="Its data directory.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF gateway run]…")
@examples(
    "sparewatt gateway service --behind-proxy --public-url https://gateway.example \\",
    "  | sudo tee /etc/systemd/system/sparewatt-gateway.service",
)
def service(*, user: str, data: Path, words: tuple[str, ...]) -> None:
    """Print a systemd unit that runs this gateway with these options. Nothing is installed."""
    settings = _check(words)
    print(
        render_unit(
            GatewayUnit(
                program=str(Path(sys.executable).with_name("sparewatt")),
                user=user,
                data=data.absolute(),
                words=words,
                drain_s=settings.drain_s,
                low_port=0 < settings.port < 1024,
                reloads=settings.has_tls,
            )
        )
    )


def _check(words: tuple[str, ...]) -> GatewaySettings:
    """Read the options as `gateway run` does, so that a mistake is an error now and not at the next boot.

    Raises StartupError.
    """
    from sparewatt.core.settings import load_settings
    from sparewatt.gateway.addresses import refuse_unlinkable, refuse_unsafe
    from sparewatt.gateway.settings import GatewaySettings

    with run.make_context("sparewatt gateway run", list(words)) as context:
        flags = dict(context.params)
    file = flags.pop("config")
    settings = load_settings(GatewaySettings, section="gateway", flags=flags, env=os.environ, file=file)
    refuse_unsafe(settings)
    refuse_unlinkable(settings)
    return settings


def _directory(data: Path) -> str:
    """systemd creates a directory under /var/lib by itself, owned by the unit's user."""
    if data.parent == Path("/var/lib"):
        return f"StateDirectory={data.name}\nStateDirectoryMode=0700"
    return f"ReadWritePaths={data}"


class GatewayUnit(NamedTuple):
    """The values of a unit that differ from gateway to gateway."""

    program: str
    user: str
    data: Path
    words: tuple[str, ...]
    drain_s: float
    low_port: bool
    reloads: bool


def render_unit(service: GatewayUnit) -> str:
    """The unit. The gateway can write its own directory only, and cannot gain privileges."""
    argv = (service.program, "gateway", "run", "--data", str(service.data), *service.words)
    start = shlex.join(argv).replace("%", "%%").replace("$", "$$")
    reload = "ExecReload=/bin/kill -HUP $MAINPID\n" if service.reloads else ""
    capability = "CAP_NET_BIND_SERVICE" if service.low_port else ""
    ambient = f"AmbientCapabilities={capability}\n" if capability else ""
    return f"""\
[Unit]
Description=Sparewatt gateway
After=network-online.target postgresql.service
Wants=network-online.target

[Service]
User={service.user}
# DATABASE_URL, SPAREWATT_SECRET and the like; readable by root alone. Without it the gateway runs its own Postgres.
EnvironmentFile=-{ENV_FILE}
ExecStart={start}
{reload}Restart=always
RestartSec=2
# SIGTERM finishes running answers, then the books are written and the database stops.
KillMode=mixed
TimeoutStopSec={service.drain_s + STOP_MORE_S:.0f}
LimitNOFILE=65536
UMask=0077
{_directory(service.data)}

# What it may not do.
CapabilityBoundingSet={capability}
{ambient}NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
