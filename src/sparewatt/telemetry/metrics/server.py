"""The second port: `/metrics` for Prometheus, and health for whatever watches the process. Never the public one.

It names no account and no client, and asks for no key: so it listens only where no strangers are.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from sparewatt.core.drain import DrainState
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.telemetry.metrics.collector import MetricsCollector
from sparewatt.telemetry.metrics.exposition import CONTENT_TYPE

_log = Logger("sparewatt.gateway")
METRICS_PORT = 9484
SHUTDOWN_S = 1.0


class MetricsServer:
    def __init__(self, collector: MetricsCollector, *, drain: DrainState, ports: Sequence[int] = ()) -> None:
        """`ports`: where each process of a gateway of several exposes its metrics."""
        self._collector = collector
        self._drain = drain
        self._ports = ports

    @asynccontextmanager
    async def listening(self, listener: socket.socket | None) -> AsyncIterator[None]:
        """Serve on a socket that is bound already, also while the gateway drains. Without one, do nothing."""
        if listener is None:
            yield
            return
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            host, port = listener.getsockname()[:2]
            _log.info("metrics_listening", host=host, port=port)
            yield
        finally:
            await runner.cleanup()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._show_metrics),
                web.get("/metrics/targets", self._list_targets),
                web.get("/healthz", self._show_health),
                web.get("/readyz", self._show_readiness),
            ]
        )
        return app

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._collector.page(), headers={"content-type": CONTENT_TYPE})

    async def _list_targets(self, request: web.Request) -> web.Response:
        """What to scrape, for Prometheus' HTTP service discovery: every process, at this address."""
        transport = request.transport
        host, port = transport.get_extra_info("sockname")[:2] if transport is not None else ("127.0.0.1", METRICS_PORT)
        name = f"[{host}]" if ":" in host else host
        targets = [f"{name}:{each}" for each in self._ports or (port,)]
        return _json([{"targets": targets, "labels": {"__meta_sparewatt_role": "gateway"}}])

    async def _show_health(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _show_readiness(self, _: web.Request) -> web.Response:
        """503 once it drains: a load balancer then sends it nothing more."""
        is_draining = self._drain.is_draining
        return _json({"status": "stopping" if is_draining else "ready"}, status=503 if is_draining else 200)


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def refuse_strangers(host: str) -> None:
    """The port can be read by anybody who reaches it, in the clear. Raises StartupError."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise StartupError(f"--metrics-host takes an IP address, not {host!r}.") from None
    if address.is_unspecified or not (address.is_private or address.is_loopback):
        raise StartupError(
            f"Refusing to show metrics on {host}: anybody could read them. Use an address of this machine or of a "
            "private network, and a proxy with a password where they are needed outside."
        )
