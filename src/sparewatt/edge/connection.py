"""One client's TCP connection: requests are parsed one after another and answered in order (HTTP pipelining).

A request that a model answers becomes an `Exchange` (callbacks, no framework); any other is passed to aiohttp through
an `AiohttpBridge`. Requests that come before the one ahead is answered are queued, few and small; a client that sends
more is not read for a while (back-pressure). Work that would block the event loop waits in the registry's fair queues.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import cast

from sparewatt.core.errors import BodyTooLarge, BodyTooSlow, QueueFull, RequestTooSlow, SparewattError
from sparewatt.core.limits import KIB, MIB, READ_PER_TICK_BYTES, REQUEST_BODY_BYTES_MAX
from sparewatt.core.log import Logger
from sparewatt.edge.aiohttp_bridge import AiohttpBridge
from sparewatt.edge.connection_registry import ConnectionRegistry, KnownHead, known_head
from sparewatt.edge.exchange import Exchange
from sparewatt.edge.http1 import CONTINUE, LAST_CHUNK, RequestHead, RequestParser, chunk_bytes
from sparewatt.edge.proxies import bypass_error, forwarded_address
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.protocol.openai.json_complexity import COMPLEX_BODY_BYTES_MIN, JsonComplexityCheck

PIPELINED_MAX = 16
"""Requests of a connection that wait for the one ahead of them; beyond it the client is not read for a while."""
PIPELINED_BYTES_MAX = 256 * KIB
"""Their bodies: a body that waits occupies memory for longer than one that is answered at once."""
BODIES_BYTES_MAX = 512 * MIB
"""Bodies of all clients that are being read: two dozen of the largest, any number of the usual."""
LINGER_S = 1.0
"""How long a refused client may go on sending, so that it receives the reply that says why."""
LINGER_BYTES_MAX = 8 * MIB
"""How much of that is read and dropped."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing drops what was not sent."""
_TOO_LARGE = f"The body is larger than {REQUEST_BODY_BYTES_MAX // MIB} MiB."
_log = Logger("sparewatt.gateway")


class ConnectionState(enum.Enum):
    OPEN = "open"
    LAST_REPLY = "last_reply"
    """The reply under way is the last; what comes in is ignored."""
    LINGERING = "lingering"
    """The last reply was sent; input is read and dropped, since closing at once could lose the reply."""
    UPGRADED = "upgraded"
    """Every byte goes to aiohttp: the connection speaks another protocol than HTTP."""
    CLOSED = "closed"
    """Lost, or handed over to a node's link."""


@dataclass(slots=True, eq=False)
class PipelinedRequest:
    """A request from its head to its reply. Its body is collected here, unless aiohttp gets it as it comes."""

    head: RequestHead
    fault: SparewattError | None
    """Why it is refused; the first reason stays."""
    since_s: float
    is_complete: bool = False
    exchange: Exchange | None = None
    """Answers it, if a model does."""
    is_bridged: bool = False
    """Whether aiohttp answers it."""
    body: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    complexity: JsonComplexityCheck | None = None
    """Counts the values of a long body as it comes in."""

    @property
    def has_begun(self) -> bool:
        return self.exchange is not None or self.is_bridged


class Connection(asyncio.Protocol):
    """Implements RequestReader and ClientSocket."""

    __slots__ = (
        "_bridge", "_deferred", "_idle_since_s", "_known", "_lingered_bytes", "_lingers_since_s", "_loop", "_parser",
        "_paused_at_s", "_queued_bytes", "_registry", "_requests", "_state", "_transport", "_unsent_bytes",
        "is_paused", "peer", "write_batch",
    )  # fmt: skip

    def __init__(self, registry: ConnectionRegistry, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self.write_batch = registry.write_batch
        self._loop = loop
        self._state = ConnectionState.OPEN
        self._parser = RequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._requests: list[PipelinedRequest] = []
        """The first is being answered, the others wait for it."""
        self._queued_bytes = 0
        """Of the bodies of those that wait."""
        self._deferred = b""
        """Input that waits for a later tick of the event loop: this connection is in a `FairQueue`."""
        self._bridge: AiohttpBridge | None = None
        self._known: KnownHead | None = None
        """The head of the last request that a model answered."""
        self._idle_since_s = monotonic()
        self.is_paused = False
        """Whether the client does not read what it is sent."""
        self._paused_at_s = 0.0
        self._unsent_bytes = 0
        self._lingers_since_s = 0.0
        self._lingered_bytes = 0
        self.peer = "unknown"

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        if not self._registry.admit(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._take_deferred()
        for request in self._requests:
            self._forget_body(request)
            if request.exchange is not None:
                request.exchange.leave()
        self._requests.clear()
        if self._bridge is not None:
            self._bridge.connection_lost(exc)
        self._bridge = None  # a reference cycle, as llhttp is: freed here, not by the garbage collector

    def _leave(self) -> None:
        if self._state is ConnectionState.CLOSED:
            return
        self._state, self._transport = ConnectionState.CLOSED, None
        self._parser.close()
        self._registry.remove(self)

    def data_received(self, data: bytes) -> None:
        known, body = self._known, self._known_body(data)
        if known is not None and body is not None:
            if self._registry.late_requests.must_wait():
                self._defer_request(data, known.principal.account_id)
            else:
                self._serve_known(known, body)
        elif self._deferred:
            self._defer(data)
            self._pause_reading()
        elif self._is_between_requests() and self._registry.late_requests.must_wait():
            self._defer_request(data, self.peer)
        else:
            self._receive(data)

    def eof_received(self) -> bool:
        """A client that sends no more counts as gone: its jobs stop. TLS closes by itself.

        Of many clients that disconnect in one tick, a few are closed per tick.
        """
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False
        self._registry.disconnects.enqueue(self.peer, self.close)
        return True

    def pause_writing(self) -> None:
        self.is_paused, self._paused_at_s = True, monotonic()
        self._unsent_bytes = self._buffered_bytes()
        if self._bridge is not None:
            self._bridge.pause_writing()
        if self._requests and self._requests[0].exchange is not None:
            self._requests[0].exchange.on_client_stalled()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._bridge is not None:
            self._bridge.resume_writing()
        if self._requests and self._requests[0].exchange is not None:
            self._requests[0].exchange.on_client_caught_up()

    # called by an exchange

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def writer(self) -> Callable[[bytes], None] | None:
        return self._transport.write if self._transport is not None else None

    def on_replied(self, *, closes: bool) -> None:
        """The reply to the first request was written."""
        request = self._requests[0] if self._requests else None
        if request is None or self._transport is None:
            return
        if closes or not request.is_complete:
            self._linger()
        else:
            self._next()

    def abort(self) -> None:
        """Close, and drop what is buffered for the client here and in the kernel: it does not read."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    # called by the server

    @property
    def is_busy(self) -> bool:
        """Whether a reply is under way."""
        return bool(self._requests or self._deferred) and self._state is not ConnectionState.UPGRADED

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def check_timeouts(self, now_s: float, timeouts: ClientTimeouts) -> bool:
        """True if the client exceeded a timeout and was closed or refused. Called every `check_s`."""
        # A WebSocket has its own limits: whoever reads a lease's port may pause for longer.
        may_pause = self._state is ConnectionState.UPGRADED
        if self.is_paused and not may_pause and self._is_stalled(now_s, timeouts):
            self.abort()
            return True
        if self._state is ConnectionState.LINGERING:
            return self._close_if(now_s - self._lingers_since_s > LINGER_S)
        if self._requests:
            return self._check_request(self._requests[0], now_s, timeouts)
        if self._state is ConnectionState.UPGRADED or self._deferred:
            return False
        if self._parser.is_reading_head and now_s - self._idle_since_s > timeouts.head_s:
            self._refuse(RequestTooSlow(f"The request's head was not here after {timeouts.head_s:.0f} s."))
            return True
        return self._close_if(now_s - self._idle_since_s > timeouts.idle_s)

    def _check_request(self, request: PipelinedRequest, now_s: float, timeouts: ClientTimeouts) -> bool:
        is_late = not request.is_complete and now_s - request.since_s > timeouts.body_s
        if is_late and self._state is not ConnectionState.UPGRADED:
            self._refuse(BodyTooSlow(f"The body was not here after {timeouts.body_s:.0f} s."))
            return True
        if request.exchange is not None:
            request.exchange.keep_alive(now_s, timeouts)
        return False

    def _close_if(self, is_over: bool) -> bool:  # noqa: FBT001 (a condition is its only argument)
        if is_over:
            self.close()
        return is_over

    def _is_stalled(self, now_s: float, timeouts: ClientTimeouts) -> bool:
        """Whether the client reads nothing at all. A slow reader is no stalled one."""
        unsent_bytes = self._buffered_bytes()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_bytes, self._paused_at_s = unsent_bytes, now_s
        return now_s - self._paused_at_s > timeouts.write_s

    def _buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # reading

    def _is_between_requests(self) -> bool:
        """Whether the next byte begins a new request that may be read."""
        is_idle = self._state is ConnectionState.OPEN and not self._requests and not self._deferred
        return is_idle and self._parser.is_between_requests and self._registry.bodies_bytes <= BODIES_BYTES_MAX

    def _receive(self, data: bytes) -> None:
        """Handle input that is no request with a known head: at most READ_PER_TICK_BYTES of it in this tick."""
        is_upgraded = self._state is ConnectionState.UPGRADED
        if len(data) > READ_PER_TICK_BYTES and not is_upgraded:
            self._defer(data[READ_PER_TICK_BYTES:])
            data = data[:READ_PER_TICK_BYTES]
        if is_upgraded and self._bridge is not None:
            self._bridge.data_received(data)
        elif self._state is ConnectionState.LINGERING:
            self._lingered_bytes += len(data)
            self._close_if(self._lingered_bytes > LINGER_BYTES_MAX)
        elif self._state is ConnectionState.OPEN:
            self._parse(data)
        if self._deferred or (len(data) >= READ_PER_TICK_BYTES and self._bridge is None):
            self._yield_to_others()

    def _parse(self, data: bytes) -> None:
        was_between = self._is_between_requests()
        self._parser.feed(data)
        if was_between and len(self._requests) == 1 and not self._parser.is_reading_head:
            self._remember_head(data)

    # known heads

    def _known_body(self, data: bytes) -> bytes | None:
        """The body, if `data` is a whole request whose head came before, byte for byte."""
        known = self._known
        if known is None or not data.startswith(known.before) or not self._is_between_requests():
            return None
        return known.body_of(data)

    def _serve_known(self, known: KnownHead, body: bytes) -> None:
        """Serve a request without parsing its head."""
        inference = self._registry.inference
        if inference is None:
            return
        exchange = Exchange(inference, self, known.head, known.endpoint)
        self._requests.append(PipelinedRequest(known.head, None, monotonic(), is_complete=True, exchange=exchange))
        exchange.enter_again(known.principal, known.options)
        if exchange.principal is not None and exchange.options is not None:
            known.principal, known.options = exchange.principal, exchange.options  # the key may have changed
        exchange.submit(body)

    def _remember_head(self, data: bytes) -> None:
        """Remember the head of a request that is all of `data`, and that a model answers."""
        request = self._requests[0]
        if not request.is_complete or request.exchange is None:
            return
        known = known_head(data, request.head, request.exchange)
        if known is not None:
            self._known = self._registry.known_heads.shared(known)
            self._parser.release()

    # called by the parser

    @property
    def body_size_bytes(self) -> int | None:
        return self._requests[-1].size_bytes if self._requests else None

    def on_request_begin(self) -> None:
        if not self._requests:
            self._idle_since_s = monotonic()

    def on_head(self, head: RequestHead, fault: SparewattError | None) -> None:
        head = head if self._registry.is_of_site(head) else head.canonical()
        request = PipelinedRequest(head, fault, monotonic())
        self._requests.append(request)
        if len(self._requests) == 1:
            self._begin(request)
        elif len(self._requests) > PIPELINED_MAX:
            self._pause_reading()

    def on_body(self, data: bytes) -> None:
        if not self._requests:
            return
        request = self._requests[-1]
        request.size_bytes += len(data)
        if request.is_bridged and self._bridge is not None:
            self._bridge.data_received(chunk_bytes(data) if request.head.is_chunked else data)
        elif request.size_bytes > REQUEST_BODY_BYTES_MAX:
            self._refuse_body(request, BodyTooLarge(_TOO_LARGE))
        elif request.fault is None:
            request.body.append(data)
            self._registry.bodies_bytes += len(data)
            self._count_queued(request, len(data))
            if request.size_bytes >= COMPLEX_BODY_BYTES_MIN:
                self._check_complexity(request, data)

    def _check_complexity(self, request: PipelinedRequest, data: bytes) -> None:
        """Refuse a body of very many small values before all of it is here."""
        if request.complexity is None:
            request.complexity, data = JsonComplexityCheck(), b"".join(request.body)
        try:
            request.complexity.feed(data)
        except BodyTooLarge as error:
            self._refuse_body(request, error)

    def _refuse_body(self, request: PipelinedRequest, fault: SparewattError) -> None:
        request.fault = request.fault or fault
        self._forget_body(request)
        if request is self._requests[0]:
            self._refuse(request.fault)

    def on_request_end(self, error: SparewattError | None) -> None:
        if not self._requests:
            return
        request = self._requests[-1]
        if error is not None and request.fault is None:
            self._refuse(error)
            return
        request.is_complete = True
        if request is not self._requests[0]:
            return
        if request.exchange is not None:
            self._submit(request)
        elif request.is_bridged and self._bridge is not None and request.head.is_chunked:
            self._bridge.data_received(LAST_CHUNK)

    def takes_socket(self, head: RequestHead) -> bool:
        return head.is_socket or (head.offers_socket and self._registry.is_of_site(head))

    def on_upgrade(self, rest: bytes) -> None:
        """A node opens its link: aiohttp's WebSocket, or a socket handed over to picows."""
        first = self._requests[0] if self._requests else None
        if first is not None and first.is_bridged and self._bridge is not None:
            self._state = ConnectionState.UPGRADED
            if rest:
                self._bridge.data_received(rest)
        elif first is not None and first.fault is None:
            self._hand_over(first.head, rest)

    def on_parser_error(self, error: SparewattError) -> None:
        self._refuse(error)

    def on_crash(self, error: BaseException) -> None:
        _log.crash("connection_crashed", error)
        self.abort()

    def _hand_over(self, head: RequestHead, rest: bytes) -> None:
        """Leave the socket to the link registry."""
        transport, links = self._transport, self._registry.links
        if transport is None or links is None:
            return
        self._requests.clear()
        self._leave()
        if self._bridge is not None:
            self._bridge.detach()
        address = forwarded_address(self.peer, head.headers, self._registry.settings)
        links.adopt(transport, head.to_bytes() + rest, address=address)

    def _count_queued(self, request: PipelinedRequest, n_bytes: int) -> None:
        if request is not self._requests[0]:
            self._queued_bytes += n_bytes
            if self._queued_bytes > PIPELINED_BYTES_MAX:
                self._pause_reading()

    # fair queueing

    def _defer_request(self, data: bytes, share: str) -> None:
        """A request that came late in a tick waits for a later one: fair by account, else by address."""
        self._defer(data)
        self._registry.late_requests.enqueue(share, self._read_deferred)

    def _yield_to_others(self) -> None:
        """Read an upload a piece per tick: one socket can contain megabytes."""
        if self._transport is not None and (self._deferred or self._transport.is_reading()):
            self._transport.pause_reading()
            self._registry.uploads.enqueue(self, self._read_deferred)

    def _read_deferred(self) -> None:
        data = self._take_deferred()
        if self._transport is None or self._transport.is_closing():
            return
        known, body = self._known, self._known_body(data)
        if known is not None and body is not None:
            self._serve_known(known, body)
        elif data:
            self._receive(data)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Unless the connection is in a queue again, or a bound of the pipeline is reached."""
        transport, is_full = self._transport, self._queued_bytes > PIPELINED_BYTES_MAX
        if transport is None or is_full or len(self._requests) > PIPELINED_MAX or self._deferred:
            return
        if self._bridge is not None and self._bridge.is_full:
            return
        if not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _defer(self, data: bytes) -> None:
        self._deferred += data
        self._registry.bodies_bytes += len(data)

    def _take_deferred(self) -> bytes:
        data, self._deferred = self._deferred, b""
        self._registry.bodies_bytes -= len(data)
        return data

    def _pause_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    # answering

    def _begin(self, request: PipelinedRequest) -> None:
        """Answer the first request of the pipeline, or refuse it for its first fault."""
        head, inference = request.head, self._registry.inference
        is_of_site = self._registry.is_of_site(head)
        endpoint = inference.endpoint(head) if inference is not None and not is_of_site else None
        request.fault = request.fault or self._fault_of(head)
        if request.fault is not None:
            self._refuse(request.fault)
        elif self._registry.adopts(head):
            return  # the parser calls `on_upgrade` next
        elif inference is None or endpoint is None:
            self._bridge_request(request)
        else:
            exchange = request.exchange = Exchange(inference, self, head, endpoint)
            is_accepted = exchange.enter()
            if request.is_complete:
                self._submit(request)
            elif head.is_expecting and is_accepted:
                self.write(CONTINUE)
            elif head.is_expecting:
                exchange.submit(b"")

    def _fault_of(self, head: RequestHead) -> SparewattError | None:
        if head.is_link and self._registry.settings.behind_proxy:
            error = bypass_error(self.peer, head.headers, self._registry.settings)
            if error is not None:
                return error
        if (head.length or 0) > REQUEST_BODY_BYTES_MAX:
            return BodyTooLarge(_TOO_LARGE)
        if self._registry.bodies_bytes > BODIES_BYTES_MAX:
            return QueueFull("Too many large requests are being read here. Try again in 2 s.", retry_after_s=2.0)
        return None

    def _submit(self, request: PipelinedRequest) -> None:
        body = request.body[0] if len(request.body) == 1 else b"".join(request.body)
        self._forget_body(request)
        if request.exchange is not None:
            request.exchange.submit(body)

    def _forget_body(self, request: PipelinedRequest) -> None:
        if request.body:
            self._registry.bodies_bytes -= sum(map(len, request.body))
            request.body = []

    def _bridge_request(self, request: PipelinedRequest) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._bridge is None:
            self._bridge = self._registry.make_bridge(self._on_bridge_replied)
            self._bridge.connection_made(transport)
            if self.is_paused:
                self._bridge.pause_writing()
        request.is_bridged = True
        self._bridge.begin(request.head)
        for piece in request.body:
            self._bridge.data_received(chunk_bytes(piece) if request.head.is_chunked else piece)
        self._forget_body(request)
        if request.is_complete and request.head.is_chunked:
            self._bridge.data_received(LAST_CHUNK)

    def _on_bridge_replied(self) -> None:
        if self._state is ConnectionState.UPGRADED:
            self.close()
        elif self._requests and self._requests[0].is_bridged:
            self._next() if self._requests[0].is_complete else self._linger()

    def _next(self) -> None:
        request = self._requests.pop(0)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not request.head.keep_alive or self._registry.is_draining:
            transport.close()
            return
        self._idle_since_s = monotonic()
        if self._requests:
            self._loop.call_soon(self._begin_next)
        elif not transport.is_reading():
            self._queued_bytes = 0
            transport.resume_reading()

    def _begin_next(self) -> None:
        if self._requests and not self._requests[0].has_begun:
            self._queued_bytes -= sum(map(len, self._requests[0].body))
            self._begin(self._requests[0])

    def _refuse(self, error: SparewattError) -> None:
        """Reply with an error, ignore further input, and close: after the replies to requests ahead."""
        first = self._requests[0] if self._requests else None
        if self._state is ConnectionState.LINGERING:
            return  # the last reply was sent
        if first is None or not first.has_begun:
            self.write(self._registry.refusals.reply(error, first.head if first is not None else None))
            self._linger()
        elif first.exchange is not None and not first.is_complete and first.exchange.may_refuse:
            first.exchange.refuse(error)
        elif first.is_complete:
            first.head = first.head._replace(keep_alive=False)
            self._mute(ConnectionState.LAST_REPLY)
        else:
            self.close()

    def _mute(self, state: ConnectionState) -> None:
        self._state = state
        self._parser.is_muted = True

    def _linger(self) -> None:
        """The last reply was sent. Read and drop what the client still sends for LINGER_S, then close."""
        self._mute(ConnectionState.LINGERING)
        self._lingers_since_s = monotonic()
        transport = self._transport
        if transport is not None and (not self._requests or self._requests[-1].is_complete):
            transport.close()
        elif transport is not None and not transport.is_reading():
            transport.resume_reading()
        for request in self._requests:
            self._forget_body(request)
        self._requests.clear()
