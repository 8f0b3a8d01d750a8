"""A gateway of several processes: one command, one public port, one log, one database; each child uses one core.

This is their parent. It serves nothing itself: it holds the ports, runs a Postgres if none is named, starts a process
again that died, and passes signals on. The kernel spreads clients' connections over the children.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sparewatt.cluster.peer_client import LOOPBACK, PeerClient
from sparewatt.cluster.process_slot import ProcessSlot, new_slots
from sparewatt.cluster.questions import READY, ReadyRequest
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import SystemRng
from sparewatt.edge.server import bind
from sparewatt.gateway.addresses import PORT_MAX, refuse_unlinkable, refuse_unsafe
from sparewatt.gateway.metrics_port import metrics_port_error
from sparewatt.gateway.process import own_postgres, read_certificate, write_port
from sparewatt.gateway.process_assignment import write_assignment
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.machine.children import ChildExit, ChildSpec, Supervisor
from sparewatt.machine.signals import stop_event
from sparewatt.store.database import Database
from sparewatt.telemetry.metrics.server import METRICS_PORT, refuse_public_host

_log = Logger("sparewatt.gateway")
READY_POLL_S = 0.05
READY_S = 120.0
"""From start to serving: seconds, and more where a long journal is settled first."""
STOP_MORE_S = 12.0
"""After the answers that still run: to post what is left."""


async def run_processes(settings: GatewaySettings) -> None:
    """Keep the processes running until SIGTERM or SIGINT. Raises StartupError."""
    refuse_unsafe(settings)
    refuse_unlinkable(settings)
    read_certificate(settings)  # a mistake in it is told once, here
    clock, rng = SystemClock(), SystemRng()
    children = Supervisor(clock=clock, rng=rng, on_exit=_tell_exit)
    stop = stop_event(on_hangup=(lambda: children.signal_all(signal.SIGHUP)) if settings.has_tls else None)
    with reserved_ports(settings) as ports:
        async with own_postgres(settings, clock=clock, rng=rng) as dsn:
            await (await Database.connect(dsn)).close()  # raises what is wrong with it, and brings it up to date
            slots = new_slots(link_ports=ports.links, peer_ports=ports.peers, metrics_ports=ports.metrics, rng=rng)
            child_settings = replace(
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


@dataclass(slots=True)
class StartupGate:
    """Opened once, when every process takes links: a node that came before could not reach all of them."""

    client: PeerClient
    is_open: bool = False

    async def is_ready(self, number: int) -> bool:
        reply = await self.client.ask(number, READY, ReadyRequest(self.is_open))
        return reply is not None and (reply.is_open if self.is_open else reply.is_in)

    async def open(self) -> None:
        """Raises StartupError if some process does not take clients in time."""
        self.is_open = True
        try:
            async with asyncio.timeout(READY_S):
                for number in self.client.slot.others:
                    while not await self.is_ready(number):  # noqa: ASYNC110 (another process answers)
                        await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            raise StartupError("A process of the gateway does not take requests. Its log says why.") from None


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
            await _write_ports(settings, ports)
            _log.info("gateway_up", host=settings.host, port=ports.public, processes=len(processes))
            await stop.wait()
    finally:
        starting.cancel()
        stopped.cancel()
        await children.stop()


async def _write_ports(settings: GatewaySettings, ports: GatewayPorts) -> None:
    if settings.metrics_port_file is not None and ports.metrics:
        await asyncio.to_thread(write_port, settings.metrics_port_file, ports.metrics[0])
    if settings.port_file is not None:
        await asyncio.to_thread(write_port, settings.port_file, ports.public)


async def _start(children: Supervisor, processes: list[ChildSpec], gate: StartupGate) -> None:
    """The first by itself: it makes what there is one of, and settles what dead ones left behind."""
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
        drain_s=settings.drain_s + STOP_MORE_S,
        needs=frozenset(),
        stdin_data=write_assignment(settings, slot),
    )


def _tell_exit(ended: ChildExit) -> None:
    _log.warning(
        "process_ended",
        name=ended.name,
        pid=ended.pid,
        status=ended.returncode,
        uptime_s=round(ended.uptime_s, 1),
        restart_in_s=None if ended.restart_in_s is None else round(ended.restart_in_s, 1),
    )


class GatewayPorts(NamedTuple):
    public: int
    links: tuple[int, ...]
    peers: tuple[int, ...]
    """Where processes ask each other."""
    metrics: tuple[int, ...]
    """None where metrics are off."""


@contextlib.contextmanager
def reserved_ports(settings: GatewaySettings) -> Iterator[GatewayPorts]:
    """All that the processes will listen at. Raises StartupError.

    They are ours as long as this lasts, also while a process is down. A socket that does not listen gets nothing.
    """
    with contextlib.ExitStack() as stack:

        def hold(host: str, port: int) -> int:
            if port:
                bind(host, port).close()  # another program's shared port is not ours to join
            bound = stack.enter_context(contextlib.closing(bind(host, port, shared=True)))
            return _port_of(bound)

        public = hold(settings.host, settings.port)
        count, first = settings.processes, settings.link_port
        links = [hold(settings.host, first + at if first is not None else 0) for at in range(count)]
        peers = [hold(LOOPBACK, 0) for _ in range(count)]
        yield GatewayPorts(public, tuple(links), tuple(peers), _hold_for_metrics(settings, hold))


def _hold_for_metrics(settings: GatewaySettings, hold: Callable[[str, int], int]) -> tuple[int, ...]:
    """One for each process: from the port that was named, or from the usual one on, with free ones for those taken."""
    if not settings.metrics:
        return ()
    host, named = settings.metrics_host, settings.metrics_port
    refuse_public_host(host)

    def usual(at: int) -> int:
        try:
            return hold(host, METRICS_PORT + at)
        except StartupError:
            return hold(host, 0)

    if named is None:
        return tuple(usual(at) for at in range(settings.processes))
    if named + settings.processes - 1 > PORT_MAX:
        raise StartupError(f"--metrics-port {named} leaves no {settings.processes} ports. Choose another.")
    try:
        return tuple(hold(host, named + at if named else 0) for at in range(settings.processes))
    except StartupError as error:
        raise metrics_port_error(error) from None


def _port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port
