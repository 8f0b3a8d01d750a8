"""The lifetime of a gateway process: bind, assemble, listen, run the background work, drain, stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from sparewatt.cluster.peer_rpc import ALONE, ProcessSlot
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import ShuttingDown, StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.edge.server import bind, listen, serving, start_listening
from sparewatt.edge.tls import Certificate
from sparewatt.gateway.addresses import refuse_unsafe
from sparewatt.gateway.chores import chores_of, repeat, run_once, save_nodes, save_power, tune_garbage_collector
from sparewatt.gateway.health_probe import is_low
from sparewatt.gateway.membership import joined, wait_until_it_may_open
from sparewatt.gateway.routes import endpoint_groups, inference_endpoints, make_app, refusals
from sparewatt.gateway.services import Services, assemble
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.matcher import kernel
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.machine.signals import stop_event
from sparewatt.postgres.server import supervised_postgres
from sparewatt.store.database import Database
from sparewatt.telemetry.metrics.server import METRICS_PORT, refuse_public_host

_log = Logger("sparewatt.gateway")

POSTGRES = "postgres"
RESPONSE_CLOSE_S = 2.0


async def run_gateway(settings: GatewaySettings, slot: ProcessSlot = ALONE) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartupError. `slot`: which process of the gateway this is."""
    refuse_unsafe(settings)
    certificate = read_certificate(settings)
    stop = stop_event(on_hangup=certificate.reload if certificate is not None else None)
    clock, rng = SystemClock(), SystemRng()
    async with AsyncExitStack() as stack:
        bound = bind(settings.host, settings.port, shared=True) if slot.others else listen(settings.host, settings.port)
        stack.callback(bound.close)
        metrics = open_metrics_socket(settings, slot)
        if metrics is not None:
            stack.callback(metrics.close)
        dsn = await stack.enter_async_context(own_postgres(settings, clock=clock, rng=rng))
        database = await Database.connect(dsn, is_disk_low=partial(is_low, settings.data.expanduser()))
        stack.push_async_callback(database.close)
        port: int = bound.getsockname()[1]
        services = await assemble(settings, database, port=port, clock=clock, rng=rng, slot=slot)
        tls = certificate.context if certificate is not None else None
        groups = endpoint_groups(services)
        if slot.others:
            await stack.enter_async_context(joined(services, groups, tls=tls))
            await wait_until_it_may_open(services, stop)
        await stack.enter_async_context(services.metrics.listening(metrics))
        await stack.enter_async_context(
            serving(
                make_app(services, groups),
                start_listening(bound),
                settings=settings.edge,
                inference=inference_endpoints(services),
                links=services.links,
                refusals=refusals(services),
                tls=tls,
            )
        )
        services.peers.is_open = True
        metrics_port = metrics.getsockname()[1] if metrics is not None else None
        await asyncio.to_thread(write_port_files, settings, port=port, metrics_port=metrics_port)
        services.loop_lag.watch()
        tune_garbage_collector()
        scan = "compiled" if kernel.ready() else "numpy"
        _log.info("gateway_listening", host=settings.host, port=port, tls=settings.has_tls, scan=scan)
        services.downloads.pack()
        await _serve_until(stop, services, certificate)


def read_certificate(settings: GatewaySettings) -> Certificate | None:
    """Raises StartupError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


@asynccontextmanager
async def own_postgres(settings: GatewaySettings, *, clock: Clock, rng: Rng) -> AsyncIterator[str]:
    """The URL of the operator's Postgres, or of an embedded one that runs as long as this process."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    home = make_private_dir(settings.data.expanduser()) / POSTGRES
    async with supervised_postgres(
        home, clock=clock, rng=rng, notify=lambda text: _log.info("own_postgres", said=text)
    ) as dsn:
        yield dsn


def write_port_files(settings: GatewaySettings, *, port: int, metrics_port: int | None) -> None:
    """The public port last: a supervisor that reads it finds the other one written."""
    for path, number in ((settings.metrics_port_file, metrics_port), (settings.port_file, port)):
        if path is not None and number is not None:
            temporary = path.with_suffix(".tmp")
            temporary.write_text(str(number))
            temporary.replace(path)


def open_metrics_socket(settings: GatewaySettings, slot: ProcessSlot = ALONE) -> socket.socket | None:
    """None if metrics are off. Raises StartupError if the port of the settings is taken.

    Without a port in the settings it is the one before a restart, the default, or any free one: a second network on
    this machine must start all the same.
    """
    host = settings.metrics_host
    if not settings.metrics:
        return None
    refuse_public_host(host)
    if slot.metrics_ports:
        return listen(host, slot.metrics_ports[slot.number], shared=True)
    if settings.metrics_port is not None:
        return _listen_for_metrics(host, settings.metrics_port)
    for port in (*_previous_port(settings.metrics_port_file), METRICS_PORT):
        with suppress(StartupError):
            return _listen_for_metrics(host, port)
    return _listen_for_metrics(host, 0)


def _previous_port(file: Path | None) -> list[int]:
    """The port in the port file, if a gateway wrote one."""
    try:
        return [int(file.read_text())] if file is not None else []
    except (OSError, ValueError):
        return []


def _listen_for_metrics(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except StartupError as error:
        raise metrics_port_error(error) from None


def metrics_port_error(error: StartupError) -> StartupError:
    return StartupError(f"The metrics have no port: {error.message}".replace("--port", "--metrics-port"))


async def _serve_until(stop: asyncio.Event, services: Services, certificate: Certificate | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(repeat(chore)) for chore in chores_of(services, certificate)]
        await stop.wait()
        await _drain(services)
        for task in background:
            task.cancel()


async def _drain(services: Services) -> None:
    """Accept nothing new, refuse queued requests, let running answers finish, close the links.

    An answer that is not over in time ends in an error object: the supervisor may kill this process soon after.
    """
    services.drain.is_draining = True
    services.admission.close()
    services.live.close()
    await services.checks.close()
    try:
        async with asyncio.timeout(services.settings.drain_s):
            while services.dispatcher.running:  # noqa: ASYNC110 (polls; an event per job would cost more)
                await asyncio.sleep(0.02)
    except TimeoutError:
        _log.warning("drain_timed_out", jobs=services.dispatcher.running)
        services.dispatcher.abort_all(ShuttingDown("This gateway is stopping. What came before is incomplete."))
    await services.responses.close(within_s=RESPONSE_CLOSE_S)
    await run_once(lambda: save_nodes(services), name="nodes_save")
    await run_once(lambda: save_power(services), name="power_save")
    await run_once(services.timings.exchange, name="timings")
    await run_once(services.explanations.store, name="matches_store")
    await run_once(services.history.close, name="history")
    if services.accounting is not None:
        await run_once(services.accounting.close, name="books_close")
    await services.collector.close()
    await services.validators.close()
    services.links.say_goodbye("the gateway is stopping")
    await services.links.close()
