"""A gateway of several processes: one command, one public port, one log, one database; each child uses one core.

This is their parent. It serves nothing itself: it holds the ports, runs a Postgres if none is named, starts a process
again that died, and passes on what it is told. The system spreads clients' connections over the children.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace

from sparewatt.core.clock import SystemClock
from sparewatt.core.log import Log
from sparewatt.core.rng import SystemRng
from sparewatt.gateway.addresses import bind, refuse_unlinkable, refuse_unsafe
from sparewatt.gateway.process import own_postgres, read_certificate, write_port
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.asking import LOOPBACK, Asker
from sparewatt.gateway.siblings.place import Place, new_places, write_sheet
from sparewatt.gateway.siblings.questions import READY, Nothing
from sparewatt.store.database import Database
from sparewatt.supervisor.children import Child, ChildExit, Supervisor
from sparewatt.supervisor.signals import stop_event

_log = Log("sparewatt.gateway")
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
    with reserved_ports(settings) as (port, link_ports, sibling_ports):
        async with own_postgres(settings, clock=clock, rng=rng) as dsn:
            await (await Database.connect(dsn)).close()  # raises what is wrong with it, and brings it up to date
            places = new_places(link_ports=link_ports, sibling_ports=sibling_ports, rng=rng)
            told = replace(settings, port=port, database_url=dsn, port_file=None, processes=1)
            asker = Asker(Place(number=len(places), sibling_ports=sibling_ports, secret=places[0].secret))
            try:
                async with children:
                    await _serve(children, [_child(told, place, asker) for place in places], stop, settings, port=port)
            finally:
                await asker.close()


async def _serve(
    children: Supervisor, processes: list[Child], stop: asyncio.Event, settings: GatewaySettings, *, port: int
) -> None:
    starting, stopped = asyncio.create_task(_start(children, processes)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            starting.result()
            if settings.port_file is not None:
                await asyncio.to_thread(write_port, settings.port_file, port)
            _log.info("gateway_up", host=settings.host, port=port, processes=len(processes))
            await stop.wait()
    finally:
        starting.cancel()
        stopped.cancel()
        await children.stop_together()


async def _start(children: Supervisor, processes: list[Child]) -> None:
    """The first by itself: it makes what there is one of, and settles what dead ones left behind."""
    first, *others = processes
    await children.start(first)
    await asyncio.gather(*map(children.start, others))


def _child(settings: GatewaySettings, place: Place, asker: Asker) -> Child:
    async def is_ready() -> bool:
        told = await asker.ask(place.number, READY, Nothing())
        return told is not None and told.yes

    return Child(
        name=f"gateway process {place.number + 1}",
        argv=(sys.executable, "-m", "sparewatt", "gateway", "process"),
        log_path=None,
        is_ready=is_ready,
        ready_timeout_s=READY_S,
        drain_s=settings.drain_s + STOP_MORE_S,
        told=write_sheet(settings, place),
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


@contextlib.contextmanager
def reserved_ports(settings: GatewaySettings) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The public port, the link ports, and those on which processes ask each other. Raises StartupError.

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
        asking = [hold(LOOPBACK, 0) for _ in range(count)]
        yield public, tuple(links), tuple(asking)


def _port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port
