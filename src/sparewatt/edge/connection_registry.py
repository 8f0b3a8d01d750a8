"""All connections of one listening server: how many there may be, and what they share.

Shared are the fair queues for work that one tick of the event loop cannot do, error replies without a handler, and the
known heads: a client sends the same head with every request of a connection, but for the length of its body. A head
that is known byte for byte is neither parsed nor authorised again: 10 % of a request's processor time (ADR 31).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import SparewattError
from sparewatt.core.fair_queue import FairQueue
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.aiohttp_bridge import AiohttpBridge
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.exchange import Endpoint, Exchange, InferenceEndpoints
from sparewatt.edge.http1 import SERVER, DateHeader, RequestHead, reply_head_bytes
from sparewatt.edge.middleware import ErrorCounter, RequestLine, log_finished
from sparewatt.edge.proxies import is_trusted
from sparewatt.edge.settings import EdgeSettings
from sparewatt.edge.sites import is_site_host
from sparewatt.inference.dispatch.model import WriteBatch
from sparewatt.inference.service import RequestOptions
from sparewatt.protocol.error_shapes import shaped_error
from sparewatt.protocol.openai.chat import error_headers

if TYPE_CHECKING:
    from sparewatt.edge.connection import Connection

CONNECTIONS_MAX = 20_000
"""Clients' connections at one process; an idle one takes about 3 kB here and as much in the kernel."""
CONNECTIONS_PER_ADDRESS_MAX = 2_000
"""From one address outside of this machine and our own proxies: a large office behind one router."""
CONNECTIONS_CLOSED_PER_TICK = 16
"""Closing one connection stops a job or frees memory: more in one tick would block the event loop."""
KNOWN_HEADS_MAX = 1024
"""Known heads of all connections. Beyond that all are forgotten, and learned again."""

_LENGTH_FIELD = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?")
_LENGTH_DIGITS_MAX = 8
_HEAD_END = b"\r\n\r\n"
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade", "idempotency-key", "cookie", "origin"})
"""Fields that change how a request is read or answered: a head with one is not remembered."""
_COUNTED = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"),
        *("/api/chat", "/api/generate", "/api/embed"),
    }
)
"""Inference endpoints: their errors are counted even if no exchange was made."""


@dataclass(slots=True, eq=False)
class KnownHead:
    before: bytes
    """The head's bytes before the digits of the body's length."""
    after: bytes
    """Its bytes after those digits."""
    head: RequestHead
    endpoint: Endpoint
    principal: Principal
    options: RequestOptions

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` (which begins with `before`) is this head and a whole body; else None."""
        start = len(self.before)
        end = data.find(b"\r", start, start + _LENGTH_DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        at = end + len(self.after)
        return data[at:] if len(data) - at == int(digits) else None


def known_head(data: bytes, head: RequestHead, exchange: Exchange) -> KnownHead | None:
    """The head of a request that is all of `data`, if its exchange has authenticated the client."""
    principal, options = exchange.principal, exchange.options
    if principal is None or options is None or not _UNUSUAL.isdisjoint(head.headers):
        return None
    end = data.find(_HEAD_END) + len(_HEAD_END)
    length = _LENGTH_FIELD.search(data, 0, end)
    if length is None:
        return None
    after = data[data.find(b"\r", length.end()) : end]
    known = KnownHead(data[: length.end()], after, head, exchange.endpoint, principal, options)
    return known if known.body_of(data) is not None else None


class KnownHeads:
    """Shared by all connections: clients of one kind with one key send the same head."""

    def __init__(self) -> None:
        self._by_bytes: dict[tuple[bytes, bytes], KnownHead] = {}

    def shared(self, known: KnownHead) -> KnownHead:
        """The one that is stored already, unless its key has changed since."""
        bytes_ = known.before, known.after
        stored = self._by_bytes.get(bytes_)
        if stored is None or stored.principal.key is not known.principal.key:
            if len(self._by_bytes) >= KNOWN_HEADS_MAX:
                self._by_bytes.clear()
            stored = self._by_bytes[bytes_] = known
        return stored


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Error replies without a handler: to bytes that are no HTTP request, or to a request refused by its head alone.

    They are counted and logged as any other reply. The connection closes after one.
    """

    errors: ErrorCounter | None
    is_logged: bool
    rng: Rng
    _date: DateHeader = field(default_factory=DateHeader)

    def reply(self, error: SparewattError, head: RequestHead | None) -> bytes:
        request_id = new_id("req", rng=self.rng)
        path = head.path if head is not None else "unknown"
        if path in _COUNTED and self.errors is not None:
            self.errors.count_error(error.code)
        if self.is_logged:
            method = head.method.decode("latin-1")[:20] if head is not None else "?"
            route = path if path in _COUNTED else "unknown"
            log_finished(RequestLine(request_id, f"{method} {route}", error.status, 0.0, error.code), None)
        status, error_object = shaped_error(
            error, path=path, headers=head.headers if head is not None else {}, request_id=request_id
        )
        headers = {
            "content-type": "application/json",
            "server": SERVER,
            "x-request-id": request_id,
            **error_headers(error),
            **(cors_headers(path, head.headers) if head is not None else {}),
        }
        body = msgspec.json.encode(error_object)
        framing = f"content-length: {len(body)}\r\nconnection: close\r\n{self._date.line()}"
        return reply_head_bytes(status, headers, framing) + body


class LinkAcceptor(Protocol):
    """Takes over a connection on which a node opens its link."""

    def can_adopt(self) -> bool: ...

    def adopt(self, transport: asyncio.Transport, head: bytes, *, address: str) -> asyncio.BaseProtocol:
        """`address`: the node's, also behind a reverse proxy."""
        ...


@dataclass(eq=False, repr=False)
class ConnectionRegistry:
    manager: web.Server
    settings: EdgeSettings
    inference: InferenceEndpoints | None
    """The endpoints that models answer, served without aiohttp."""
    links: LinkAcceptor | None
    """Where nodes may dial."""
    refusals: Refusals
    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        loop = self.loop
        self.connections: set[Connection] = set()
        self._count_by_address: dict[str, int] = {}
        self.bodies_bytes = 0
        """Of all requests that are being read or are queued."""
        self.is_draining = False
        self.known_heads = KnownHeads()
        self.write_batch = WriteBatch(loop.call_soon)
        self.late_requests = FairQueue(loop.call_soon)
        """Requests that came after a tick had used up its time."""
        self.uploads = FairQueue(loop.call_soon, at_once=1)
        """Connections with more of a body to read than one tick reads."""
        self.disconnects = FairQueue(loop.call_soon, at_once=CONNECTIONS_CLOSED_PER_TICK)

    def admit(self, connection: Connection) -> bool:
        """False if there are too many connections, in all or from this address.

        The caller accepts and then closes it: an unaccepted one would block the listening socket for all clients.
        """
        count = self._count_by_address.get(connection.peer, 0)
        is_remote = not is_trusted(connection.peer, None)
        if len(self.connections) >= CONNECTIONS_MAX or (is_remote and count >= CONNECTIONS_PER_ADDRESS_MAX):
            return False
        self.connections.add(connection)
        self._count_by_address[connection.peer] = count + 1
        return True

    def remove(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self._count_by_address[connection.peer] -= 1
        if not self._count_by_address[connection.peer]:
            del self._count_by_address[connection.peer]

    def adopts(self, head: RequestHead) -> bool:
        """Whether a node opens its link and the link needs no framework either."""
        return self.links is not None and head.is_link and self.links.can_adopt() and not self.is_of_site(head)

    def is_of_site(self, head: RequestHead) -> bool:
        """Whether it is for a lease's public site: then nothing of this gateway answers it."""
        return is_site_host(head.headers.get("host", ""), self.settings.sites_host)

    def make_bridge(self, on_replied: Callable[[], None]) -> AiohttpBridge:
        return AiohttpBridge(self.manager, loop=self.loop, on_replied=on_replied)
