"""GET /healthz, /readyz and /version, for load balancers, probes and clients. They need no key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from sparewatt import __version__
from sparewatt.api.endpoint import endpoint
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import ShuttingDown
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.operations import Liveness, Readiness, VersionInfo
from sparewatt.protocol.link.frames import PROTOCOL_VERSION


@dataclass(slots=True, kw_only=True)
class HealthEndpoints:
    rows: Iterable[NodeRow]
    """All nodes, whenever it is iterated."""
    drain: DrainState

    @endpoint("GET /healthz", access="public")
    async def show_liveness(self, _: web.Request) -> Liveness:
        """Report that the process runs."""
        return Liveness()

    @endpoint("GET /readyz", access="public")
    async def show_readiness(self, _: web.Request) -> Readiness:
        """Report that the process takes requests, and how many nodes could serve them."""
        if self.drain.is_draining:
            raise ShuttingDown("This gateway is stopping.")
        connected = (row for row in self.rows if row.connected)
        serving = sum(any(model.measured for model in row.models.values()) for row in connected)
        return Readiness(nodes_serving=serving)

    @endpoint("GET /version", access="public")
    async def show_version(self, _: web.Request) -> VersionInfo:
        """Show the versions of the program, the API and the link protocol."""
        return VersionInfo(version=__version__, link_protocol=PROTOCOL_VERSION)
