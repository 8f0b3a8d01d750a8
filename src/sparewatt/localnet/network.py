"""`sparewatt up`: a whole network on one machine: database, gateway, nodes, and a chain in the background.

All parts are processes like those of a distributed network; this process starts, supervises and stops them. The network
is ready when a node can answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from sparewatt.api.nodes.join_line import line_of
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import GATEWAY_PROCESSES_MAX
from sparewatt.core.rng import Rng
from sparewatt.localnet.bootstrap import LOCAL_NODES_ACCOUNT, OWNER_KEY_FILE, bootstrap_database, node_id_of
from sparewatt.localnet.chain import DeployedChain, LocalChain, plan_chain
from sparewatt.localnet.demo_model import DEMO_MODEL, fetch_weights
from sparewatt.localnet.health_watch import watch_health
from sparewatt.localnet.nodes import LocalNode, engine_argv, local_nodes, node_argv
from sparewatt.localnet.podman import PODMAN, SOCKET_NAME, podman_spec
from sparewatt.localnet.providers import LocalProviders, OwnerApi
from sparewatt.localnet.setup_commands import SetupRunner, build_dashboard
from sparewatt.localnet.validators import local_validators, start_validators, validator_spec
from sparewatt.machine.backoff import Notify, in_background
from sparewatt.machine.children import ChildExit, ChildSpec, Supervisor
from sparewatt.machine.data_dir import DataDir, make_private_dir, write_private
from sparewatt.machine.signals import stop_event
from sparewatt.postgres.server import supervised_postgres

Step = TypeVar("Step")
READY_FILE = "ready.json"
METRICS_PORT_FILE = "metrics.port"
GATEWAY = "gateway"
FIRST_NODE_S = 300.0
OTHER_NODES_S = 20.0
POLL_S = 0.1
GATEWAY_READY_S = 30.0
"""For each of its processes."""
GATEWAY_DRAIN_S = 2.0
"""The gateway is stopped last: its nodes have drained already, and no other node could continue an answer."""
GATEWAY_STOP_S = GATEWAY_DRAIN_S + 15.0
"""After the drain it still ends its clients' streams and writes its books; killed earlier, streams would break off."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    data: Path = Path(".sparewatt")
    port: Annotated[int, Meta(ge=1, le=65535)] = 8484
    processes: Annotated[int, Meta(ge=1, le=GATEWAY_PROCESSES_MAX)] = 1
    """Of the gateway."""
    nodes: Annotated[int, Meta(ge=0, le=32)] = 3
    validators: Annotated[int, Meta(ge=0, le=32)] = 4
    """Of the lease market, on a chain of our own."""
    engine: Literal["llama", "deterministic"] = "llama"
    database_url: str | None = None
    chain_url: str | None = None
    no_chain: bool = False
    containers: bool = True
    """Start a podman service for leases, if podman is installed and no engine listens."""
    chain_setup: str | None = None
    """A command that installs the chain's packages in the background; it must be idempotent."""
    web_setup: str | None = None
    """A command that builds the dashboard, likewise."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """Of the gateway. None: 9484, or a free one."""
    stop_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """Drain time of running answers when the network is stopped."""


@dataclass(frozen=True, slots=True)
class LocalnetInfo:
    """What is needed to use the network; the content of ready.json."""

    base_url: str
    api_key: str
    dashboard_url: str
    join_token: str
    pid: int
    model: str
    metrics_url: str | None = None
    """For Prometheus; None if the operator switched metrics off."""
    join_line: str = ""
    """The shell command by which another machine joins as a node."""
    operator_link: str = ""
    """Opens the dashboard as the operator, once."""
    chain_url: str | None = None
    """None until the chain is up, or if there is none."""
    contracts: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Given:
    """What is known before anything starts."""

    data: Path
    settings: UpSettings
    weights: Path | None
    """Of the demo model; None if no node serves it."""
    program: str
    """As the user calls it, for lines to copy."""


def refuse_taken_port(port: int) -> None:
    """Checked before anything starts: another server on the port would pass for our gateway. Raises StartupError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StartupError(f"Port {port} cannot be used ({error.strerror}). Choose another with --port.") from None


async def run_network(
    settings: UpSettings,
    *,
    program: str,
    clock: Clock,
    rng: Rng,
    notify: Notify,
    on_ready: Callable[[LocalnetInfo, Path], None],
) -> None:
    """Start everything, call `on_ready`, run until SIGINT or SIGTERM. Raises StartupError.

    `program`: as the user calls it, for lines to copy.
    """
    stop = stop_event()
    with DataDir(settings.data) as data:
        refuse_taken_port(settings.port)
        ready_file = data.path / READY_FILE
        ready_file.unlink(missing_ok=True)
        make_private_dir(data.path / "logs")
        weights = await _unless_stopped(_weights(settings, notify=notify), stop)
        if stop.is_set():
            return
        given = _Given(data.path, settings, weights, program)
        async with _network(given, clock=clock, rng=rng, notify=notify) as (network, chain):
            info = await _unless_stopped(network.start(), stop)
            if info is not None:
                _write_info(info, ready_file)
                on_ready(info, ready_file)
                async with (
                    in_background(watch_health(partial(_readiness, info), notify)),
                    in_background(_open_market(network, info, chain)),
                ):
                    await _add_chain(info, ready_file, chain, stop)
                    await stop.wait()
            ready_file.unlink(missing_ok=True)
            notify("Stopping …")


async def _weights(settings: UpSettings, *, notify: Notify) -> Path | None:
    """Before anything is started: a network without a model would answer nothing. None if no node needs the file."""
    if settings.engine == "deterministic" or not settings.nodes:
        return None
    return await fetch_weights(notify=notify)


async def _unless_stopped(step: Coroutine[None, None, Step], stop: asyncio.Event) -> Step | None:
    """The result of a step of the start; None if the user pressed Ctrl-C before it was done."""
    async with in_background(step) as running:
        await _first_of(running, stop)
        return running.result() if running.done() else None


async def _first_of(task: asyncio.Task[Any], stop: asyncio.Event) -> None:
    async with in_background(stop.wait()) as stopped:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)


def _write_info(info: LocalnetInfo, ready_file: Path) -> None:
    write_private(ready_file, json.dumps(info.as_json(), indent=2).encode())


async def _add_chain(
    info: LocalnetInfo, ready_file: Path, starting: asyncio.Task[DeployedChain | None], stop: asyncio.Event
) -> None:
    """Add the chain to ready.json once it is up."""
    await _first_of(starting, stop)
    chain = starting.result() if starting.done() and not starting.cancelled() else None
    if chain is not None:
        _write_info(replace(info, chain_url=chain.chain_url, contracts=chain.contracts), ready_file)


async def _open_market(network: _Network, info: LocalnetInfo, starting: asyncio.Task[DeployedChain | None]) -> None:
    """Register the local nodes as providers, then start validators, once there is a chain of our own: its money is test
    money."""
    data, settings, notify = network.data, network.settings, network.notify
    chain = None if settings.chain_url is not None else await asyncio.shield(starting)
    if chain is None:
        return
    owner_key = (data / OWNER_KEY_FILE).read_text().strip()
    nodes = [node_id_of(node) for node in local_nodes(data, settings.nodes)]
    providers = LocalProviders(OwnerApi(info.base_url, owner_key).send, notify, network.given.program)
    await providers.register_all([node_id for node_id in nodes if node_id is not None])
    folders = {"chain_folder": data / "chain", "logs": data / "logs"}
    specs = [
        validator_spec(validator, chain_url=chain.chain_url, **folders)
        for validator in local_validators(data, settings.validators)
    ]
    await start_validators(
        specs, network.children, podman_socket=data / SOCKET_NAME, program=network.given.program, notify=notify
    )


@asynccontextmanager
async def _network(
    given: _Given, *, clock: Clock, rng: Rng, notify: Notify
) -> AsyncIterator[tuple[_Network, asyncio.Task[DeployedChain | None]]]:
    """Owns everything that runs. The chain starts in the background: the first token does not wait for it."""
    data, settings = given.data, given.settings
    plan, setups = plan_chain(chain_url=settings.chain_url, no_chain=settings.no_chain), SetupRunner()
    async with (
        _postgres(data, settings, clock=clock, rng=rng, notify=notify) as dsn,
        Supervisor(clock=clock, rng=rng, on_exit=lambda ended: notify(describe_exit(ended))) as children,
        in_background(build_dashboard(settings.web_setup, data, setups, notify=notify)),
        LocalChain(
            plan=plan,
            data=data,
            dsn=dsn,
            children=children,
            setup=settings.chain_setup,
            setups=setups,
            clock=clock,
            rng=rng,
            notify=notify,
        ).in_background() as chain,
    ):
        yield _Network(given, dsn, plan.url if plan else None, children, clock, rng, notify), chain


@asynccontextmanager
async def _postgres(data: Path, settings: UpSettings, *, clock: Clock, rng: Rng, notify: Notify) -> AsyncIterator[str]:
    """The connection string of the operator's own Postgres, or of an embedded one."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    async with supervised_postgres(data / "postgres", clock=clock, rng=rng, notify=notify) as dsn:
        yield dsn


# the processes


@dataclass(frozen=True, slots=True)
class _Network:
    given: _Given
    dsn: str
    chain_url: str | None
    children: Supervisor
    clock: Clock
    rng: Rng
    notify: Notify

    @property
    def data(self) -> Path:
        return self.given.data

    @property
    def settings(self) -> UpSettings:
        return self.given.settings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    async def start(self) -> LocalnetInfo:
        """Returns when the first nodes can answer. Raises StartupError."""
        nodes = local_nodes(self.data, self.settings.nodes)
        bootstrap = await bootstrap_database(self.dsn, self.data, nodes, clock=self.clock, rng=self.rng)
        self.notify("Starting the gateway …")
        _, _, engine = await asyncio.gather(
            self.children.start(self._gateway()), self._start_engines(nodes), self._start_podman()
        )
        self.notify(f"Starting {len(nodes)} nodes …")
        for node in nodes:
            await self.children.start(self._node(node, token=bootstrap.node_tokens.get(node.name), engine=engine))
        await self._wait_for_nodes(len(nodes))
        return LocalnetInfo(
            base_url=f"{self.url}/v1",
            api_key=bootstrap.api_key,
            dashboard_url=f"{self.url}/",
            join_token=bootstrap.join_token,
            pid=os.getpid(),
            model=DEMO_MODEL,
            metrics_url=await asyncio.to_thread(_metrics_url, self.data),
            join_line=await self._join_line(bootstrap.join_token),
            operator_link=await self._operator_link(bootstrap.api_key),
        )

    def _gateway(self) -> ChildSpec:
        settings = self.settings
        port_file, metrics_port_file = self.data / "gateway.port", self.data / METRICS_PORT_FILE
        for file in (port_file, metrics_port_file):
            file.unlink(missing_ok=True)
        return ChildSpec(
            name=GATEWAY,
            argv=(
                *(sys.executable, "-m", "sparewatt", "gateway", "run"),
                f"--port={settings.port}",
                f"--port-file={port_file}",
                f"--data={self.data / 'gateway'}",
                f"--metrics-port-file={metrics_port_file}",
                *(() if settings.metrics_port is None else (f"--metrics-port={settings.metrics_port}",)),
                "--metrics-by-node",
                f"--drain-s={GATEWAY_DRAIN_S}",
                f"--processes={settings.processes}",
                "--development",
                f"--own-accounts={LOCAL_NODES_ACCOUNT}",
            ),
            env={"DATABASE_URL": self.dsn, "CHAIN_URL": self.chain_url or ""},
            log_path=self.data / "logs" / "gateway.log",
            is_ready=lambda: self._is_gateway_ready(port_file),
            ready_timeout_s=GATEWAY_READY_S * settings.processes,
            drain_s=GATEWAY_STOP_S,
        )

    async def _start_podman(self) -> dict[str, str]:
        """The variable by which nodes find it; empty if they look for an engine themselves. Answers need none."""
        wanted = self.settings.containers and self.chain_url is not None
        spec = await asyncio.to_thread(podman_spec, self.data) if wanted else None
        if spec is None:
            return {}
        try:
            await self.children.start(spec)
        except StartupError as error:
            self.notify(f"Leases do not start here: {error.message}")
            return {}
        return {"DOCKER_HOST": f"unix://{self.data.absolute() / SOCKET_NAME}"}

    async def _start_engines(self, nodes: list[LocalNode]) -> None:
        """They depend on no other process, so they start with the gateway. A real model is served by its node."""
        if self.settings.engine != "deterministic":
            return
        for node in nodes:
            await self.children.start(
                ChildSpec(
                    name=_engine_name(node),
                    argv=engine_argv(node, model=DEMO_MODEL),
                    log_path=self.data / "logs" / f"{node.name}-engine.log",
                    drain_s=self.settings.stop_s,
                    needs=frozenset(),
                )
            )

    def _node(self, node: LocalNode, *, token: str | None, engine: Mapping[str, str]) -> ChildSpec:
        """A node needs its engine and the gateway, and no other node: all nodes stop at the same time."""
        return ChildSpec(
            name=node.name,
            argv=node_argv(
                node,
                self.url,
                weights=self.given.weights,
                model=DEMO_MODEL,
                drain_s=self.settings.stop_s,
                leases=self.chain_url is not None,
            ),
            env={**({"SPAREWATT_NODE_TOKEN": token} if token else {}), **engine},
            log_path=self.data / "logs" / f"{node.name}.log",
            drain_s=self.settings.stop_s + 1,
            needs=frozenset({GATEWAY, _engine_name(node), PODMAN}),
        )

    async def _is_gateway_ready(self, port_file: Path) -> bool:
        """The port file shows that our own gateway listens, /readyz that it takes requests."""
        if not await asyncio.to_thread(port_file.exists):
            return False
        return (await _get_json(f"{self.url}/readyz")).get("status") == "ready"

    async def _wait_for_nodes(self, wanted: int) -> None:
        """The first node may have to load and measure its model; then the others get OTHER_NODES_S."""
        deadline_s = self.clock.now_s() + FIRST_NODE_S
        seen = 0
        while seen < wanted and self.clock.now_s() < deadline_s:
            serving = int((await _get_json(f"{self.url}/readyz")).get("nodes_serving", 0))
            if serving > seen:
                self.notify(f"{serving} of {wanted} nodes measured and serving.")
                deadline_s = self.clock.now_s() + OTHER_NODES_S
            seen = serving
            await asyncio.sleep(POLL_S)
        if wanted and not seen:
            raise StartupError("No node came up in time. The logs are under logs/ in the data directory.")

    async def _operator_link(self, api_key: str) -> str:
        """A link without which the page still works, for those who log in."""
        status, reply = await asyncio.to_thread(OwnerApi(f"{self.url}/v1", api_key).send, "/login/links", {})
        return str(reply["url"]) if status == 201 else f"{self.url}/"

    async def _join_line(self, token: str) -> str:
        install = (await _get_json(f"{self.url}/dl")).get("install")
        return line_of(str(install), self.url, token) if install else f"sparewatt node join {self.url} --token {token}"


def _engine_name(node: LocalNode) -> str:
    return f"{node.name} engine"


def _metrics_url(data: Path) -> str | None:
    """From the port file that the gateway has written by now, if it serves metrics."""
    try:
        return f"http://127.0.0.1:{int((data / METRICS_PORT_FILE).read_text())}/metrics"
    except (OSError, ValueError):
        return None


async def _readiness(info: LocalnetInfo) -> dict[str, Any]:
    """From the metrics port if there is one, which says more."""
    root = info.metrics_url.removesuffix("/metrics") if info.metrics_url else info.dashboard_url.rstrip("/")
    return await _get_json(f"{root}/readyz")


async def _get_json(url: str) -> dict[str, Any]:
    """From our own gateway, whatever the status; empty if it does not answer."""

    def get() -> dict[str, Any]:
        body: dict[str, Any]
        try:
            with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 (our own loopback address)
                body = json.load(reply)
                return body
        except urllib.error.HTTPError as error:
            with error, suppress(OSError, ValueError):
                body = json.load(error)
                return body
            return {}
        except (urllib.error.URLError, OSError, ValueError):
            return {}

    return await asyncio.to_thread(get)


def describe_exit(ended: ChildExit) -> str:
    if ended.was_hung:
        return f"{ended.name} did not answer and was killed; starting it again in {ended.restart_in_s:.1f} s."
    how = "could not be started" if ended.returncode is None else f"ended with status {ended.returncode}"
    return f"{ended.name} {how}; starting it again in {ended.restart_in_s:.1f} s."
