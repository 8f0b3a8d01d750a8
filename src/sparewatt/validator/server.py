"""A small HTTP/1.1 server for strangers: aiohttp's low-level server with bounds on connections, requests and bodies.

It reads a whole body, calls one handler, and writes its reply. Compressed bodies are not unpacked. A large body is read
only of a sender whose signature for it is in the request's head.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from sparewatt.core.clock import Clock
from sparewatt.core.limits import KIB, MIB
from sparewatt.core.log import Logger
from sparewatt.protocol.signing import keccak256
from sparewatt.validator.address_limits import AddressLimits, client_of
from sparewatt.validator.body_signature import HASH_HEADER, SMALL_BODY_BYTES_MAX, SignedBody

_log = Logger("sparewatt.validator")
BODY_BYTES_MAX = 4 * MIB
"""A proposal with 128 bids, their commits and the lists of 32 validators. Anyone may send SMALL_BODY_BYTES_MAX."""
LARGE_AT_ONCE_MAX = 4
"""Large bodies of one sender that are read or handled at once: one more than a peer sends."""
READ_BUFFER_BYTES = 16 * KIB
"""Of each connection, before the server stops reading from it."""
HEAD_LINE_BYTES_MAX = 4 * KIB
HEADERS_MAX = 32
BODY_S = 5.0
"""From a request's head to the end of its body."""
FIRST_REQUEST_S = 10.0
IDLE_S = 60.0
"""A kept connection; a node sends a heartbeat every few seconds."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ServerRequest:
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ServerReply:
    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[ServerRequest], Awaitable[ServerReply]]
LargeBodySender = Callable[[Mapping[str, str]], SignedBody | None]
"""Who may send a large body with these headers; None: nobody."""


class _LimitedServer(web.Server):
    """Counts connections by address, and closes those that send no request.

    When all places are taken, a new client gets one of the client with most: else four addresses could shut out all.
    """

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], server: BoundedServer
    ) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=IDLE_S,
            max_line_size=HEAD_LINE_BYTES_MAX,
            max_field_size=HEAD_LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=0.0,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,
        )
        self._server = server
        self._clients: dict[web.RequestHandler, str] = {}
        """The oldest first."""
        self._busy: set[web.RequestHandler] = set()
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        client, limits = client_of(_peer_of(transport)), self._server.limits
        if (crowded := limits.crowded_out_by(client)) is not None:
            self._close_one_of(crowded)
        if not limits.connect(client, now_s=self._server.clock.now_s()):
            transport.abort()
            return
        self._clients[handler] = client
        loop = asyncio.get_running_loop()
        self._silent[handler] = loop.call_later(FIRST_REQUEST_S, transport.abort)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> None:
        self.heard(handler)
        self._busy.discard(handler)
        client = self._clients.pop(handler, None)
        if client is not None:
            self._server.limits.disconnect(client)

    def _close_one_of(self, client: str) -> None:
        """Its oldest connection without a request under way, else its oldest."""
        own = [handler for handler, each in self._clients.items() if each == client]
        victim = next((handler for handler in own if handler not in self._busy), own[0])
        self._forget(victim)  # its place is free at once; the transport tells later
        if victim.transport is not None:
            victim.transport.abort()

    def mark_busy(self, handler: web.RequestHandler, *, is_busy: bool) -> None:
        if not is_busy:
            self._busy.discard(handler)
        elif handler in self._clients:
            self._busy.add(handler)

    def heard(self, handler: web.RequestHandler) -> None:
        timer = self._silent.pop(handler, None)
        if timer is not None:
            timer.cancel()


class BoundedServer:
    """Open between `start` and `close`."""

    def __init__(self, handler: Handler, *, clock: Clock, large_body_sender: LargeBodySender) -> None:
        self.clock = clock
        self.limits = AddressLimits()
        self.requests = 0
        self.refused = 0
        self._handler = handler
        self._large_body_sender = large_body_sender
        self._large: Counter[str] = Counter()
        """Large bodies by sender; as many entries as there are validators."""
        self._http: _LimitedServer | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises OSError."""
        self._http = _LimitedServer(self._handle, self)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._http, host, port, ssl=tls, reuse_address=True)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._http is not None:
            self._http.pre_shutdown()
            await self._http.shutdown(1.0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        http = self._http
        if http is None:
            return _response(_STOPPED)
        http.heard(request.protocol)
        http.mark_busy(request.protocol, is_busy=True)
        try:
            return _response(await self._answer(request))
        finally:
            http.mark_busy(request.protocol, is_busy=False)

    async def _answer(self, request: web.BaseRequest) -> ServerReply:
        self.requests += 1
        client = client_of(request.remote or "")
        wait_s = self.limits.begin(client, now_s=self.clock.now_s())
        if wait_s is not None:
            self.refused += 1
            return _too_many("Too many requests from this address.", wait_s)
        try:
            if HASH_HEADER in request.headers:
                return await self._answer_large(request, client)
            return await self._answer_body(request, client, most=SMALL_BODY_BYTES_MAX)
        finally:
            self.limits.end(client)

    async def _answer_large(self, request: web.BaseRequest, client: str) -> ServerReply:
        signed = self._large_body_sender(request.headers)
        if signed is None:
            return self._refuse(_NOT_SIGNED)
        if self._large[signed.sender] >= LARGE_AT_ONCE_MAX:
            return self._refuse(_too_many("Too many large messages of this validator at once.", 1.0))
        self._large[signed.sender] += 1
        try:
            return await self._answer_body(request, client, most=BODY_BYTES_MAX, body_hash=signed.body_hash)
        finally:
            self._large[signed.sender] -= 1
            self._large = +self._large

    async def _answer_body(
        self, request: web.BaseRequest, client: str, *, most: int, body_hash: bytes | None = None
    ) -> ServerReply:
        body = await self._body(request, client, most=most)
        if isinstance(body, ServerReply):
            return self._refuse(body)
        if body_hash is not None and keccak256(body) != body_hash:
            return self._refuse(_NOT_SIGNED)
        reply = await self._handler(ServerRequest(request.method, request.path, dict(request.query), body))
        self.limits.count_bytes(client, len(reply.body), now_s=self.clock.now_s())
        return reply

    def _refuse(self, reply: ServerReply) -> ServerReply:
        self.refused += 1
        return reply

    async def _body(self, request: web.BaseRequest, client: str, *, most: int) -> bytes | ServerReply:
        if (request.content_length or 0) > most:
            return _TOO_LARGE
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > most:
                        return _TOO_LARGE
        except TimeoutError:
            return error_reply(408, "body_too_slow", f"A body has to come within {BODY_S:.0f} seconds.")
        finally:
            self.limits.count_bytes(client, len(body), now_s=self.clock.now_s())
        return bytes(body)


def error_reply(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> ServerReply:
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return ServerReply(body, status, headers=headers or {})


def _too_many(message: str, wait_s: float) -> ServerReply:
    return error_reply(429, "rate_limit_exceeded", message, {"Retry-After": str(max(1, round(wait_s)))})


_CLOSE = {"Connection": "close"}
_TOO_LARGE = error_reply(
    413,
    "body_too_large",
    "A message has at most 16 KiB, and 4 MiB if a validator with stake signed it for this one in the request's head.",
    _CLOSE,
)
_NOT_SIGNED = error_reply(403, "body_not_signed", "The head has no signature of a validator for this body.", _CLOSE)
_STOPPED = error_reply(503, "stopping", "This validator is stopping.", _CLOSE)


def _response(reply: ServerReply) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff", **reply.headers}
    return web.Response(body=reply.body, status=reply.status, content_type=reply.content_type, headers=headers)


def _peer_of(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
