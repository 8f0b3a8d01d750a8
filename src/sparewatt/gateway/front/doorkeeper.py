"""Who is let in, and what all connections of a server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from aiohttp import web

from sparewatt.core.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX, LET_GO_AT_ONCE
from sparewatt.core.line import Line
from sparewatt.gateway.front.guest import Guest
from sparewatt.gateway.front.head import Head
from sparewatt.gateway.front.known import KnownHeads
from sparewatt.gateway.front.patience import Patience
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.proxies import is_trusted
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.straight import Departures

Read = Callable[[bytes], Call]


class Visitor(Protocol):
    """A connection, as whoever looks after all of them sees it."""

    peer: str

    @property
    def is_busy(self) -> bool: ...

    def look(self, now_s: float, patience: Patience) -> bool: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Doorkeeper:
    """What all connections of a server share."""

    def __init__(
        self, manager: web.Server, services: Services | None, hot: Mapping[str, Read], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._manager = manager
        self._loop = loop
        self.services = services
        self.hot = hot
        """The paths that models answer, and how each reads its bodies."""
        self.connections: set[Visitor] = set()
        self._by_address: dict[str, int] = {}
        self.bodies_bytes = 0
        """Of requests that are being read, or wait for their turn."""
        self.is_closing = False
        self.known = KnownHeads()
        self.departures = Departures(loop.call_soon)
        self.requests = Line(loop.call_soon)
        """Those that came when a turn of the loop had gone on for long."""
        self.uploads = Line(loop.call_soon, at_once=1)
        """Bodies of which a piece was read, and more is to come."""
        self.leavers = Line(loop.call_soon, at_once=LET_GO_AT_ONCE)

    def lets_in(self, connection: Visitor) -> bool:
        """False if there are too many, in all or from its address. Never by not accepting: that would shut out all."""
        count = self._by_address.get(connection.peer, 0)
        is_far = not is_trusted(connection.peer, None)
        if len(self.connections) >= CONNECTIONS_MAX or (is_far and count >= CONNECTIONS_PER_ADDRESS_MAX):
            return False
        self.connections.add(connection)
        self._by_address[connection.peer] = count + 1
        return True

    def left(self, connection: Visitor) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        count = self._by_address[connection.peer] - 1
        if count:
            self._by_address[connection.peer] = count
        else:
            del self._by_address[connection.peer]

    def adopts(self, head: Head) -> bool:
        """Whether a node dials, and its link needs no framework either."""
        return self.services is not None and head.is_link and self.services.desk.can_adopt()

    def make_guest(self, on_answered: Callable[[], None]) -> Guest:
        return Guest(self._manager, loop=self._loop, on_answered=on_answered)
