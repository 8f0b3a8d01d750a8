"""The second port: `/metrics` for Prometheus, and health for whoever watches the process. Never the public one.

It names no account and no client, and asks for no key: so it listens only where no strangers are.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from sparewatt.core.errors import StartupError
from sparewatt.core.log import Log
from sparewatt.gateway.addresses import listen
from sparewatt.gateway.metrics.collect import collect, page_of
from sparewatt.gateway.metrics.exposition import CONTENT_TYPE
from sparewatt.gateway.services import SERVICES, Services, services_of
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.place import ALONE, Place

_log = Log("sparewatt.gateway")
METRICS_PORT = 9484
SHUTDOWN_S = 1.0


@asynccontextmanager
async def metrics_listening(services: Services, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serve on a socket that is bound already, also while the gateway drains. Without one, do nothing."""
    if listener is None:
        yield
        return
    runner = web.AppRunner(make_metrics_app(services), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        host, port = listener.getsockname()[:2]
        _log.info("metrics_listening", host=host, port=port)
        yield
    finally:
        await runner.cleanup()


def make_metrics_app(services: Services) -> web.Application:
    app = web.Application()
    app[SERVICES] = services
    app.add_routes(
        [
            web.get("/metrics", show_metrics),
            web.get("/metrics/targets", list_targets),
            web.get("/healthz", show_health),
            web.get("/readyz", show_readiness),
        ]
    )
    return app


async def show_metrics(request: web.Request) -> web.Response:
    page = await page_of(await collect(services_of(request)))
    return web.Response(body=page, headers={"content-type": CONTENT_TYPE})


async def list_targets(request: web.Request) -> web.Response:
    """What to scrape, as Prometheus' HTTP service discovery asks for it: every process, at this address."""
    transport = request.transport
    host, port = transport.get_extra_info("sockname")[:2] if transport is not None else ("127.0.0.1", METRICS_PORT)
    name = f"[{host}]" if ":" in host else host
    ports = services_of(request).place.metrics_ports or (port,)
    return _json([{"targets": [f"{name}:{each}" for each in ports], "labels": {"__meta_sparewatt_role": "gateway"}}])


async def show_health(_: web.Request) -> web.Response:
    return _json({"status": "ok"})


async def show_readiness(request: web.Request) -> web.Response:
    """503 once it stops: whoever balances load among gateways sends it nothing more."""
    stopping = services_of(request).stopping
    return _json({"status": "stopping" if stopping else "ready"}, status=503 if stopping else 200)


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def open_metrics_socket(settings: GatewaySettings, place: Place = ALONE) -> socket.socket | None:
    """None where they are off. Raises StartupError for a port that was asked for and cannot be had.

    Who asked for none gets the one it had before a restart, the usual one, or any: a second network on this machine
    must start all the same.
    """
    if not settings.metrics:
        return None
    refuse_strangers(settings.metrics_host)
    if place.metrics_ports:
        return listen(settings.metrics_host, place.metrics_ports[place.number], shared=True)
    if settings.metrics_port is not None:
        return _listen(settings.metrics_host, settings.metrics_port)
    for port in (*_port_before(settings), METRICS_PORT):
        with suppress(StartupError):
            return _listen(settings.metrics_host, port)
    return _listen(settings.metrics_host, 0)


def _port_before(settings: GatewaySettings) -> tuple[int, ...]:
    """As it stands in the port file, if a gateway wrote one."""
    try:
        return (int(settings.metrics_port_file.read_text()),) if settings.metrics_port_file is not None else ()
    except (OSError, ValueError):
        return ()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except StartupError as error:
        raise without_port(error) from None


def without_port(error: StartupError) -> StartupError:
    return StartupError(f"The metrics have no port: {error.message}".replace("--port", "--metrics-port"))


def refuse_strangers(host: str) -> None:
    """Whoever reaches it may read it, in the clear. Raises StartupError."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise StartupError(f"--metrics-host takes an IP address, not {host!r}.") from None
    if address.is_unspecified or not (address.is_private or address.is_loopback):
        raise StartupError(
            f"Refusing to show metrics on {host}: anybody could read them. Use an address of this machine or of a "
            "private network, and a proxy with a password where they are needed outside."
        )
