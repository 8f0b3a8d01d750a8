"""A gateway of several processes: one command, one public port, one log, one database; each child uses one core.

This is the parent process. It serves nothing itself: it reserves the ports, runs Postgres if none is configured,
replaces a child that died or hangs, and forwards signals. The kernel distributes clients' connections over the
children.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sparewatt.cluster.peer_rpc import LOOPBACK, PeerClient, ProcessSlot, new_slots
from sparewatt.cluster.questions import READY, ReadyRequest
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import SystemRng
from sparewatt.core.settings import build_settings
from sparewatt.edge.server import bind
from sparewatt.gateway.addresses import PORT_MAX, refuse_unlinkable, refuse_unsafe
from sparewatt.gateway.process import metrics_port_error, own_postgres, read_certificate, write_port_files
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.machine.children import HUNG_AFTER_S, ChildExit, ChildSpec, Supervisor
from sparewatt.machine.signals import stop_event
from sparewatt.store.database import Database
from sparewatt.telemetry.metrics.server import METRICS_PORT, refuse_public_host

_log = Logger("sparewatt.gateway")
READY_POLL_S = 0.05
READY_S = 120.0
"""From start to serving: seconds, and more if a long journal is settled first."""
POST_S = 12.0
"""A child may take so long after its answers have ended, to post what is left."""


_SIGN_OF_LIFE = dataclasses.replace(READY, within_s=2 * HUNG_AFTER_S)


async def run_processes(settings: GatewaySettings) -> None:
    """Keep the processes running until SIGTERM or SIGINT. Raises StartupError."""
    refuse_unsafe(settings)
    refuse_unlinkable(settings)
    read_certificate(settings)  # a mistake in it is reported once, here
    clock, rng = SystemClock(), SystemRng()
    children = Supervisor(clock=clock, rng=rng, on_exit=_log_exit)
    stop = stop_event(on_hangup=(lambda: children.signal_all(signal.SIGHUP)) if settings.has_tls else None)
    with reserved_ports(settings) as ports:
        async with own_postgres(settings, clock=clock, rng=rng) as dsn:
            await (await Database.connect(dsn)).close()  # raises StartupError, and migrates the schema
            slots = new_slots(link_ports=ports.links, peer_ports=ports.peers, metrics_ports=ports.metrics, rng=rng)
            child_settings = dataclasses.replace(
                settings, port=ports.public, database_url=dsn, port_file=None, metrics_port_file=None, processes=1
            )
            gate = StartupGate(
                PeerClient(ProcessSlot(number=len(slots), peer_ports=ports.peers, secret=slots[0].secret))
            )
            try:
                async with children:
                    processes = [_child(child_settings, slot, gate) for slot in slots]
                    await _serve(children, processes, gate, stop=stop, settings=settings, ports=ports)
            finally:
                await gate.client.close()


@dataclasses.dataclass(slots=True)
class StartupGate:
    """Opened once, when every process accepts links: before that a node could not reach all of them."""

    client: PeerClient
    is_open: bool = False

    async def is_ready(self, number: int) -> bool:
        reply = await self.client.ask(number, READY, ReadyRequest(self.is_open))
        return reply is not None and (reply.is_open if self.is_open else reply.is_in)

    async def is_alive(self, number: int) -> bool:
        """Whether it answers at all, however late; the caller sets the deadline."""
        return await self.client.ask(number, _SIGN_OF_LIFE, ReadyRequest(self.is_open)) is not None

    async def open(self) -> None:
        """Raises StartupError if some process does not accept clients in time."""
        self.is_open = True
        try:
            async with asyncio.timeout(READY_S):
                for number in self.client.slot.others:
                    while not await self.is_ready(number):  # noqa: ASYNC110 (another process answers)
                        await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            raise StartupError("A process of the gateway does not accept requests. Its log says why.") from None


async def _serve(
    children: Supervisor,
    processes: list[ChildSpec],
    gate: StartupGate,
    *,
    stop: asyncio.Event,
    settings: GatewaySettings,
    ports: GatewayPorts,
) -> None:
    starting, stopped = asyncio.create_task(_start(children, processes, gate)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            starting.result()
            metrics_port = ports.metrics[0] if ports.metrics else None
            await asyncio.to_thread(write_port_files, settings, port=ports.public, metrics_port=metrics_port)
            _log.info("gateway_up", host=settings.host, port=ports.public, processes=len(processes))
            await stop.wait()
    finally:
        starting.cancel()
        stopped.cancel()
        await children.stop()


async def _start(children: Supervisor, processes: list[ChildSpec], gate: StartupGate) -> None:
    """The first one alone: it makes keys and secret, and settles the journals of dead gateways."""
    first, *others = processes
    await children.start(first)
    await asyncio.gather(*map(children.start, others))
    await gate.open()


def _child(settings: GatewaySettings, slot: ProcessSlot, gate: StartupGate) -> ChildSpec:
    return ChildSpec(
        name=f"gateway process {slot.number + 1}",
        argv=(sys.executable, "-m", "sparewatt", "gateway", "process"),
        log_path=None,
        is_ready=lambda: gate.is_ready(slot.number),
        ready_timeout_s=READY_S,
        is_alive=lambda: gate.is_alive(slot.number),
        drain_s=settings.drain_s + POST_S,
        needs=frozenset(),
        stdin_data=write_assignment(settings, slot),
    )


def _log_exit(ended: ChildExit) -> None:
    _log.warning(
        "process_hung_and_killed" if ended.was_hung else "process_ended",
        name=ended.name,
        pid=ended.pid,
        status=ended.returncode,
        uptime_s=round(ended.uptime_s, 1),
        restart_in_s=round(ended.restart_in_s, 1),
    )


class GatewayPorts(NamedTuple):
    public: int
    links: tuple[int, ...]
    peers: tuple[int, ...]
    """Where processes ask each other."""
    metrics: tuple[int, ...]
    """Empty if metrics are off."""


@contextlib.contextmanager
def reserved_ports(settings: GatewaySettings) -> Iterator[GatewayPorts]:
    """All ports that the processes will listen on. Raises StartupError.

    They stay reserved while a process is down. A bound socket that does not listen gets no connections.
    """
    with contextlib.ExitStack() as stack:

        def reserve(host: str, port: int) -> int:
            if port:
                bind(host, port).close()  # fails if another program shares this port (SO_REUSEPORT)
            bound = stack.enter_context(contextlib.closing(bind(host, port, shared=True)))
            number: int = bound.getsockname()[1]
            return number

        public = reserve(settings.host, settings.port)
        count, first = settings.processes, settings.link_port
        links = [reserve(settings.host, first + at if first is not None else 0) for at in range(count)]
        peers = [reserve(LOOPBACK, 0) for _ in range(count)]
        yield GatewayPorts(public, tuple(links), tuple(peers), _reserve_for_metrics(settings, reserve))


def _reserve_for_metrics(settings: GatewaySettings, reserve: Callable[[str, int], int]) -> tuple[int, ...]:
    """One for each process: from the configured port on, or from the default one on with free ones for those taken."""
    if not settings.metrics:
        return ()
    host, first = settings.metrics_host, settings.metrics_port
    refuse_public_host(host)

    def default(at: int) -> int:
        try:
            return reserve(host, METRICS_PORT + at)
        except StartupError:
            return reserve(host, 0)

    if first is None:
        return tuple(default(at) for at in range(settings.processes))
    if first + settings.processes - 1 > PORT_MAX:
        raise StartupError(f"--metrics-port {first} leaves no {settings.processes} ports. Choose another.")
    try:
        return tuple(reserve(host, first + at if first else 0) for at in range(settings.processes))
    except StartupError as error:
        raise metrics_port_error(error) from None


class ProcessAssignment(msgspec.Struct, frozen=True):
    """What a child gets by a pipe. No file and no environment variable: it contains secrets."""

    settings: dict[str, Any]
    slot: ProcessSlot


def write_assignment(settings: GatewaySettings, slot: ProcessSlot) -> bytes:
    return msgspec.json.encode(ProcessAssignment(dataclasses.asdict(settings), slot), enc_hook=_encode_path)


def read_assignment(data: bytes) -> tuple[GatewaySettings, ProcessSlot]:
    """Raises StartupError or msgspec.DecodeError."""
    assignment = msgspec.json.decode(data, type=ProcessAssignment)
    return build_settings(GatewaySettings, assignment.settings, section="gateway"), assignment.slot


def _encode_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be passed to a process")
