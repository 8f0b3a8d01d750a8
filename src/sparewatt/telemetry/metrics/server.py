"""The metrics port: `/metrics` for Prometheus, and health checks for load balancers. Never the public port.

It needs no key and shows no account or client. It listens on addresses of this machine or a private network only.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from sparewatt.core.drain import DrainState
from sparewatt.core.errors import StartupError
from sparewatt.core.health import HealthState
from sparewatt.core.log import Logger
from sparewatt.edge.bodies import json_reply
from sparewatt.telemetry.metrics.collector import MetricsCollector
from sparewatt.telemetry.metrics.prometheus import CONTENT_TYPE

_log = Logger("sparewatt.gateway")
METRICS_PORT = 9484
SHUTDOWN_S = 1.0


@dataclass(slots=True, kw_only=True)
class MetricsServer:
    collector: MetricsCollector
    drain: DrainState
    health: HealthState
    ports: Sequence[int] = ()
    """One for each process, if the gateway has several."""

    @asynccontextmanager
    async def listening(self, listener: socket.socket | None) -> AsyncIterator[None]:
        """Serve on a bound socket, also while the gateway drains. Without a socket, do nothing."""
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
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/metrics/targets", self._list_targets)
        app.router.add_get("/healthz", self._show_health)
        app.router.add_get("/readyz", self._show_readiness)
        return app

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self.collector.page(), headers={"content-type": CONTENT_TYPE})

    async def _list_targets(self, request: web.Request) -> web.Response:
        """The targets of Prometheus' HTTP service discovery: every process, at this address."""
        transport = request.transport
        host, port = transport.get_extra_info("sockname")[:2] if transport is not None else ("127.0.0.1", METRICS_PORT)
        name = f"[{host}]" if ":" in host else host
        targets = [f"{name}:{each}" for each in self.ports or (port,)]
        return json_reply([{"targets": targets, "labels": {"__meta_sparewatt_role": "gateway"}}])

    async def _show_health(self, _: web.Request) -> web.Response:
        return json_reply({"status": "ok"})

    async def _show_readiness(self, _: web.Request) -> web.Response:
        """503 while it drains or is not ready, so that a load balancer sends no more requests.

        Unlike the public port it says where: a path of this machine, say.
        """
        if self.drain.is_draining:
            return json_reply({"status": "stopping"}, status=503)
        causes = [
            {"code": cause.code.value, "message": cause.message, "where": cause.where} for cause in self.health.causes
        ]
        if causes:
            return json_reply({"status": "not_ready", "causes": causes}, status=503)
        return json_reply({"status": "ready"})


def refuse_public_host(host: str) -> None:
    """The port has no authentication and no TLS. Raises StartupError for an address that strangers could reach."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise StartupError(f"--metrics-host takes an IP address, not {host!r}.") from None
    if address.is_unspecified or not (address.is_private or address.is_loopback):
        raise StartupError(
            f"Refusing to show metrics on {host}: anybody could read them. Use an address of this machine or of a "
            "private network, and a proxy with a password where they are needed outside."
        )
