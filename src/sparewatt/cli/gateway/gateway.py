"""`sparewatt gateway`: run the endpoint that clients call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sparewatt.cli.gateway.service import service
from sparewatt.cli.param_types import NUMBER
from sparewatt.cli.routing import RANKINGS


@click.group()
def gateway() -> None:
    """Run the endpoint that clients call and nodes join.

    \b
    Example:
      sparewatt gateway run
      sparewatt gateway run --host 0.0.0.0 --port 443 --public-url https://gateway.example \\
        --tls-cert fullchain.pem --tls-key privkey.pem
    """


gateway.add_command(service)


@gateway.command("run")
@click.option("--database-url", metavar="URL", help="Postgres; without one it runs its own.  [env: DATABASE_URL]")
@click.option("--host", metavar="IP", help="Address to listen on (loopback).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--port-file", type=click.Path(path_type=Path), help="Write the port here once listening.")
@click.option("--processes", type=click.IntRange(1, 64), help="Processes that share the port, a core each (1).")
@click.option("--link-port", type=click.IntRange(1, 65535), help="First of the processes' ports for nodes.")
@click.option("--metrics/--no-metrics", default=None, help="Figures for Prometheus on a second port (on).")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="That port (9484, else a free one); 0: a free one.")
@click.option("--metrics-host", metavar="IP", help="Its address: loopback, or of a private network.")
@click.option("--metrics-port-file", type=click.Path(path_type=Path), help="Write that port here once listening.")
@click.option("--metrics-by-node", is_flag=True, default=None, help="Show each node among them.")
@click.option("--request-log", is_flag=True, default=None, help="A line in the log for every request, no content.")
@click.option("--public-url", metavar="URL", help="The address that nodes and clients use, if another.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain (PEM); read again on change.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key (PEM, no passphrase).")
@click.option("--behind-proxy", is_flag=True, default=None, help="A TLS proxy in front tells clients' addresses.")
@click.option("--trusted-proxies", metavar="NETS", help="Where that proxy may be (this machine, private networks).")
@click.option("--chain-url", metavar="URL", help="JSON-RPC endpoint of the network's chain.  [env: CHAIN_URL]")
@click.option("--heartbeat-s", type=NUMBER, help="Seconds between a node's reports.")
@click.option("--suspect-after-missed", type=int, help="Missed heartbeats until a node is a last resort.")
@click.option("--offline-after-missed", type=int, help="Missed heartbeats until a node is given up.")
@click.option("--first-token-floor-s", type=NUMBER, help="The least time a node gets for its first token.")
@click.option("--idle-s", type=NUMBER, help="Silence in an answer that counts as a lost node.")
@click.option("--drain-s", type=NUMBER, help="How long to wait for running answers when asked to stop.")
@click.option("--policy", type=click.Choice(RANKINGS), help="How nodes are chosen by default.")
@click.option("--data", type=click.Path(path_type=Path), help="Where secret, journals and own Postgres are kept.")
@click.option("--signup", type=click.Choice(["open", "invite", "closed"]), help="Who may sign up.")
@click.option("--development", is_flag=True, default=None, help="Anybody may deposit test money; never in public.")
@click.option("--signup-credit-usd", metavar="USD", help="Free credits for who signs up.")
@click.option("--treasury-daily-usd", metavar="USD", help="What serving free credits may earn per day, in all.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML, table [gateway]).")
def run(*, config: Path | None, **flags: Any) -> None:
    """Serve until stopped (Ctrl-C or SIGTERM finishes running answers first).

    It listens on this machine alone; an address that others can reach needs TLS, its own or a proxy's.

    \b
    Example:
      sparewatt gateway run --port 8484
      DATABASE_URL=postgresql://… sparewatt gateway run --behind-proxy --public-url https://gateway.example
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
    from sparewatt.gateway.process_assignment import read_assignment
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
def operator_key(*, database_url: str | None, data: Path | None) -> None:
    """Make a key with every scope for the network's operator. Only the key goes to stdout.

    For the first start of a network of one's own: whoever has the database may do this, without asking a gateway.

    \b
    Example:
      export SPAREWATT_API_KEY=$(sparewatt gateway operator-key)
    """
    import asyncio

    from sparewatt.cli.gateway.database import network_database

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
