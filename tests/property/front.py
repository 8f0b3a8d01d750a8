"""The HTTP edge of a gateway for a fuzzer: a connection without a socket, behind which aiohttp answers at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from aiohttp import web

from sparewatt.core.fair_queue import TICK_BUDGET_S, FairQueue
from sparewatt.edge.aiohttp_bridge import AiohttpBridge
from sparewatt.edge.connection import Connection
from sparewatt.edge.connection_registry import CONNECTIONS_CLOSED_PER_TICK, ConnectionRegistry
from sparewatt.edge.http1 import RequestHead
from sparewatt.gateway.routes import inference_endpoints, refusals
from tests.unit.gateway.small_gateway import make_services

BRIDGED_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Ticks:
    """What of an event loop a connection uses: callbacks, run when it is told to."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self.now_s = 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def run(self) -> None:
        while self._waiting:
            self._waiting.popleft()()

    def run_one(self) -> None:
        """A single tick: whatever is asked for in it waits for the next."""
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()


class Socket(asyncio.Transport):
    """Keeps what was written. Closing is heard of later, as of a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_open = True
        self._is_reading = True

    def write(self, data: Any) -> None:
        if self.is_open:
            self.written += data

    def close(self) -> None:
        self.is_open = False

    abort = close

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def get_write_buffer_size(self) -> int:
        return 0


class QuickBridge:
    """Stands for aiohttp."""

    is_full = False

    def __init__(self, ticks: Ticks, on_replied: Callable[[], None]) -> None:
        self._ticks = ticks
        self._on_replied = on_replied
        self._socket: Socket | None = None

    def connection_made(self, socket: Socket) -> None:
        self._socket = socket

    def begin(self, _: RequestHead) -> None:
        if self._socket is not None:
            self._socket.write(BRIDGED_REPLY)
        self._ticks.call_soon(self._on_replied)

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def detach(self) -> None: ...


class QuickRegistry(ConnectionRegistry):
    def __init__(self, ticks: Ticks) -> None:
        loop = cast(asyncio.AbstractEventLoop, ticks)
        super().__init__(
            cast(web.Server, None),
            settings=_services.settings.edge,
            inference=inference_endpoints(_services),
            links=_services.links,
            refusals=refusals(_services),
            loop=loop,
        )
        self.ticks = ticks
        self.late_requests = FairQueue(ticks.call_soon, clock=lambda: ticks.now_s)
        self.disconnects = FairQueue(ticks.call_soon, at_once=CONNECTIONS_CLOSED_PER_TICK, clock=lambda: ticks.now_s)

    def be_late(self) -> None:
        """Others were begun in this tick, and took long."""
        self.late_requests.must_wait()
        self.ticks.now_s += 2 * TICK_BUDGET_S

    def adopts(self, head: RequestHead) -> bool:
        return False

    def make_bridge(self, on_replied: Callable[[], None]) -> AiohttpBridge:
        return cast(AiohttpBridge, QuickBridge(self.ticks, on_replied))


class _Crashes(logging.Handler):
    """What the edge logs as its own fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))


_services = make_services()
_crashes = _Crashes()
logging.getLogger("sparewatt.gateway").addHandler(_crashes)


def replies_to(pieces: Sequence[bytes], *, is_late: bool = False) -> bytes:
    """All that a client gets that sends these and leaves. Raises AssertionError if something broke on the way.

    `is_late`: whether each comes when a tick of the event loop has gone on for long.
    """
    _crashes.told.clear()
    ticks, socket = Ticks(), Socket()
    registry = QuickRegistry(ticks)
    connection = Connection(registry, cast(asyncio.AbstractEventLoop, ticks))
    connection.connection_made(socket)
    for piece in pieces:
        if not socket.is_open:
            break
        if is_late:
            registry.be_late()
        connection.data_received(piece)
        ticks.run()
    connection.connection_lost(None)
    ticks.run()
    assert not _crashes.told, _crashes.told
    assert not registry.connections
    assert registry.bodies_bytes == 0, "a body is counted for ever"
    return bytes(socket.written)
