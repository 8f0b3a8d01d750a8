"""Runs our gateway as its users do: with keys, limits, a ledger on a real Postgres, and a thousand linked nodes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.gateway.processes import running
from bench.gateway.targets import OURS, OURS_TWICE, TARGET_CORE, Target, wait_until_answering
from bench.gateway.tools import LOAD_CORE

from sparewatt import __version__
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import NETWORK_ACCOUNT
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import SystemRng
from sparewatt.ledger.rules import deposit_postings
from sparewatt.localnet.bootstrap import LOCAL_NODES_ACCOUNT, bootstrap_database
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.ledger import Transfer
from tests.processes import wait_until

NODES = 1_000
CREDITS_USD = 100_000
JOIN_S = 180.0
UNLIMITED = "1000000000"
_LIMITS = ("REQUESTS_PER_MIN", "TOKENS_PER_MIN", "ADDRESS_REQUESTS_PER_MIN", "ADDRESS_TOKENS_PER_MIN")
_CONFIGURING = ("SPAREWATT_", "OPENAI_", "DATABASE_URL", "CHAIN_URL")


def has_processes() -> bool:
    """Whether this version of the gateway can have several processes."""
    help_text = subprocess.run(
        [sys.executable, "-m", "sparewatt", "gateway", "run", "--help"], check=True, capture_output=True, text=True
    )
    return "--processes" in help_text.stdout


@contextmanager
def running_sparewatt(
    folder: Path, *, nodes: int, processes: int = 1, name: str | None = None, checkout: Path | None = None
) -> Iterator[Target]:
    """`checkout`: another tree of this program, whose gateway is measured instead of this one's."""
    folder.mkdir()
    cores = str(TARGET_CORE) if processes == 1 else f"{TARGET_CORE},{LOAD_CORE}"
    with running_postgres(folder / "postgres") as database:
        key, tokens = asyncio.run(prepare_network(database.dsn, folder, nodes))
        port_file = folder / "port"
        argv = [
            *(sys.executable, "-m", "sparewatt", "gateway", "run", "--port=0", f"--port-file={port_file}"),
            *(f"--database-url={database.dsn}", f"--data={folder / 'gateway'}", "--drain-s=1"),
        ]
        argv += [] if processes == 1 else [f"--processes={processes}"]
        environment = _environment(folder, checkout)
        with running(argv, cores=cores, output=folder / "gateway.txt", env=environment) as gateway:
            wait_until(port_file.exists, "the gateway does not listen", ceiling_s=JOIN_S)
            port = int(port_file.read_text())
            wait_until_answering(port, "/v1/models", OURS, key=key)
            with running_nodes(folder, port, tokens) as helper:
                yield Target(
                    name=name or (OURS if processes == 1 else OURS_TWICE),
                    version=__version__,
                    port=port,
                    key=key,
                    pids=(gateway.pid,),
                    helpers=(helper,),
                    database=(database.pid or 0,),
                    dsn=database.dsn,
                )


@contextmanager
def running_postgres(home: Path) -> Iterator[EmbeddedPostgres]:
    """On the load generator's core: its processor time must not be taken from the gateway."""
    server = EmbeddedPostgres(home)
    with asyncio.Runner() as runner:
        runner.run(server.start())
        try:
            os.sched_setaffinity(server.pid or 0, {LOAD_CORE})
            yield server
        finally:
            runner.run(server.stop())


async def prepare_network(dsn: str, folder: Path, nodes: int) -> tuple[str, list[str]]:
    """Creates an API key with credit, and a join token for each node."""
    clock, rng = SystemClock(), SystemRng()
    bootstrap = await bootstrap_database(dsn, folder, [], clock=clock, rng=rng)
    database = await Database.connect(dsn)
    try:
        money = Nano(CREDITS_USD * NANO_PER_USD)
        given = tuple(deposit_postings(NETWORK_ACCOUNT, money))
        paid_in = Transfer("bench:credits", "deposit", NETWORK_ACCOUNT, money, given, clock.unix_s())
        await database.ledger.post_transfer(paid_in)
        tokens = JoinTokens(database, rng=rng)
        return bootstrap.api_key, [(await tokens.create(LOCAL_NODES_ACCOUNT))[0] for _ in range(nodes)]
    finally:
        await database.close()


@contextmanager
def running_nodes(folder: Path, port: int, tokens: list[str]) -> Iterator[int]:
    token_file, ready = folder / "tokens", folder / "nodes.ready"
    token_file.write_text("\n".join(tokens))
    argv = [
        *(sys.executable, "-m", "bench.gateway.nodes", f"--gateway=http://127.0.0.1:{port}"),
        *(f"--tokens={token_file}", f"--ready={ready}"),
    ]
    output = folder / "nodes.txt"
    with running(argv, cores=str(LOAD_CORE), output=output, env=_environment(folder)) as process:

        def have_joined() -> bool:
            assert process.poll() is None, f"the nodes ended: {output.read_text()[-2000:]}"
            return ready.exists()

        wait_until(have_joined, "the nodes do not join", ceiling_s=JOIN_S)
        yield process.pid


def _environment(folder: Path, checkout: Path | None = None) -> dict[str, str]:
    """Without variables that configure the gateway, with a home of its own, and with rate limits too high to matter."""
    source = {"PYTHONPATH": str(checkout / "src")} if checkout is not None else {}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_CONFIGURING)}
    limits = {f"SPAREWATT_GATEWAY_{name}": UNLIMITED for name in _LIMITS}
    return {**inherited, **limits, **source, "HOME": str(folder)}
