"""The life of a gateway process: bind, assemble, listen, keep the background work going, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sparewatt.cluster.process_slot import ALONE, ProcessSlot
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import ShuttingDown
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.edge.server import bind, listen, serving, start_listening
from sparewatt.edge.tls import Certificate
from sparewatt.gateway.addresses import refuse_unsafe
from sparewatt.gateway.chores import chores_of, repeat, run_once, save_nodes, save_power, spare_the_collector
from sparewatt.gateway.membership import joined, wait_until_it_may_open
from sparewatt.gateway.metrics_port import open_metrics_socket
from sparewatt.gateway.routes import endpoint_groups, inference_endpoints, make_app, refusals
from sparewatt.gateway.services import Services, assemble
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.machine.signals import stop_event
from sparewatt.postgres.supervision import supervised_postgres
from sparewatt.store.database import Database

_log = Logger("sparewatt.gateway")

POSTGRES = "postgres"
RESPONSE_CLOSE_S = 2.0


async def run_gateway(settings: GatewaySettings, slot: ProcessSlot = ALONE) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartupError. `slot`: which process it is, of a gateway of several."""
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
        database = await Database.connect(await stack.enter_async_context(own_postgres(settings, clock=clock, rng=rng)))
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
        for file, socket in ((settings.metrics_port_file, metrics), (settings.port_file, bound)):
            if file is not None and socket is not None:
                await asyncio.to_thread(write_port, file, socket.getsockname()[1])
        services.loop_lag.watch()
        spare_the_collector()
        _log.info("gateway_listening", host=settings.host, port=port, tls=settings.has_tls)
        services.downloads.pack()
        await _serve_until(stop, services, certificate)


def read_certificate(settings: GatewaySettings) -> Certificate | None:
    """Raises StartupError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


@asynccontextmanager
async def own_postgres(settings: GatewaySettings, *, clock: Clock, rng: Rng) -> AsyncIterator[str]:
    """The URL of the operator's own Postgres, or of one that runs as long as this process does."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    home = make_private_dir(settings.data.expanduser()) / POSTGRES
    async with supervised_postgres(
        home, clock=clock, rng=rng, tell=lambda text: _log.info("own_postgres", said=text)
    ) as dsn:
        yield dsn


def write_port(path: Path, port: int) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(str(port))
    temporary.replace(path)


async def _serve_until(stop: asyncio.Event, services: Services, certificate: Certificate | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(repeat(chore)) for chore in chores_of(services, certificate)]
        await stop.wait()
        await _drain(services)
        for task in background:
            task.cancel()


async def _drain(services: Services) -> None:
    """Take nothing new, refuse those in line, let running answers finish, tell the nodes.

    What is not over in time ends in an error object: whatever asked us to stop may kill us soon after.
    """
    services.drain.is_draining = True
    services.admission.close()
    services.live.close()
    try:
        async with asyncio.timeout(services.settings.drain_s):
            while services.dispatcher.running:  # noqa: ASYNC110 (counts jobs; an event per job would cost more)
                await asyncio.sleep(0.02)
    except TimeoutError:
        _log.warning("drain_timed_out", jobs=services.dispatcher.running)
        services.dispatcher.break_off(ShuttingDown("This gateway is stopping. What came before is incomplete."))
    await services.responses.close(within_s=RESPONSE_CLOSE_S)
    await run_once(lambda: save_nodes(services), name="nodes_save")
    await run_once(lambda: save_power(services), name="power_save")
    await run_once(services.explanations.store, name="matches_store")
    await run_once(services.history.close, name="history")
    if services.accounting is not None:
        await run_once(services.accounting.close, name="books_close")
    services.links.say_goodbye("the gateway is stopping")
    await services.links.close()
