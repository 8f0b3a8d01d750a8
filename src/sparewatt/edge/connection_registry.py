"""All connections of one listening server: how many there may be, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from sparewatt.core.fair_queue import FairQueue
from sparewatt.core.limits import CONNECTIONS_CLOSED_PER_TICK, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from sparewatt.edge.aiohttp_bridge import AiohttpBridge
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.known_head import KnownHeads
from sparewatt.edge.proxies import is_trusted
from sparewatt.edge.refusals import Refusals
from sparewatt.edge.request_head import RequestHead
from sparewatt.edge.settings import EdgeSettings
from sparewatt.edge.timeouts import ClientTimeouts
from sparewatt.inference.dispatch.model import WriteBatch


class TrackedConnection(Protocol):
    """A connection as the registry and the server see it."""

    peer: str

    @property
    def is_busy(self) -> bool: ...

    def check_timeouts(self, now_s: float, timeouts: ClientTimeouts) -> bool: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class LinkAcceptor(Protocol):
    """Takes over a connection on which a node opens its link."""

    def can_adopt(self) -> bool: ...

    def adopt(self, transport: asyncio.Transport, head: bytes) -> asyncio.BaseProtocol: ...


class ConnectionRegistry:
    def __init__(
        self,
        manager: web.Server,
        *,
        settings: EdgeSettings,
        inference: InferenceEndpoints | None,
        links: LinkAcceptor | None,
        refusals: Refusals,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`inference`: the endpoints that models answer, served without aiohttp. `links`: where nodes may dial."""
        self._manager = manager
        self._loop = loop
        self.settings = settings
        self.inference = inference
        self.links = links
        self.refusals = refusals
        self.connections: set[TrackedConnection] = set()
        self._by_address: dict[str, int] = {}
        self.bodies_bytes = 0
        """Of all requests that are being read, or are queued."""
        self.is_draining = False
        self.known_heads = KnownHeads()
        self.write_batch = WriteBatch(loop.call_soon)
        self.late_requests = FairQueue(loop.call_soon)
        """Requests that came when a tick of the event loop had lasted long already."""
        self.uploads = FairQueue(loop.call_soon, at_once=1)
        """Connections of whose body a piece was read, and more is to come."""
        self.disconnects = FairQueue(loop.call_soon, at_once=CONNECTIONS_CLOSED_PER_TICK)

    def admit(self, connection: TrackedConnection) -> bool:
        """False if there are too many, in all or from its address. Accepted first: not accepting would shut out all."""
        count = self._by_address.get(connection.peer, 0)
        is_remote = not is_trusted(connection.peer, None)
        if len(self.connections) >= CONNECTIONS_MAX or (is_remote and count >= CONNECTIONS_PER_ADDRESS_MAX):
            return False
        self.connections.add(connection)
        self._by_address[connection.peer] = count + 1
        return True

    def remove(self, connection: TrackedConnection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        count = self._by_address[connection.peer] - 1
        if count:
            self._by_address[connection.peer] = count
        else:
            del self._by_address[connection.peer]

    def adopts(self, head: RequestHead) -> bool:
        """Whether a node opens its link and the link needs no framework either."""
        return self.links is not None and head.is_link and self.links.can_adopt()

    def make_bridge(self, on_replied: Callable[[], None]) -> AiohttpBridge:
        return AiohttpBridge(self._manager, loop=self._loop, on_replied=on_replied)
