"""GET /healthz, /readyz and /version, for load balancers, probes and clients. They need no key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from sparewatt import __version__
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import ShuttingDown
from sparewatt.core.health import HealthState
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.operations import Liveness, Readiness, ReadinessCause, VersionInfo
from sparewatt.protocol.link.frames import PROTOCOL_VERSION


@dataclass(slots=True, kw_only=True)
class HealthEndpoints:
    rows: Iterable[NodeRow]
    """All nodes, whenever it is iterated."""
    drain: DrainState
    health: HealthState

    @endpoint("GET /healthz", access="public")
    async def show_liveness(self, _: web.Request) -> Liveness:
        """Report that the process runs."""
        return Liveness()

    @endpoint("GET /readyz", access="public", other_statuses=(503,))
    async def show_readiness(self, _: web.Request) -> Reply[Readiness]:
        """Report whether the process takes requests, why not, and how many nodes could serve them."""
        if self.drain.is_draining:
            raise ShuttingDown("This gateway is stopping.")
        connected = (row for row in self.rows if row.connected)
        serving = sum(any(model.measured for model in row.models.values()) for row in connected)
        causes = [ReadinessCause(code=cause.code.value, message=cause.message) for cause in self.health.causes]
        if causes:
            return Reply(Readiness(status="not_ready", nodes_serving=serving, causes=causes), status=503)
        return Reply(Readiness(nodes_serving=serving))

    @endpoint("GET /version", access="public")
    async def show_version(self, _: web.Request) -> VersionInfo:
        """Show the versions of the program, the API and the link protocol."""
        return VersionInfo(version=__version__, link_protocol=PROTOCOL_VERSION)
