"""A visitor's request to the public address of a lease: relayed to the port, one request for each connection there.

It is chosen by the host name before any route of the gateway, so nothing of ours is served under such a name: no page,
no API, no error of the dashboard. What of the headers passes is decided in `leasing/access/site_headers.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sparewatt.api.leases.site_sockets import (
    SOCKETS_MAX,
    SwitchedResponse,
    VisitorBytes,
    relay_socket,
    wants_socket,
)
from sparewatt.core.errors import LeasePortClosed, NotFound, RateLimited, SparewattError
from sparewatt.core.limits import KIB
from sparewatt.edge.proxies import bypass_error, forwarded_address
from sparewatt.edge.settings import EdgeSettings
from sparewatt.edge.sites import is_site_host, site_label
from sparewatt.leasing.access.lease_access import LeaseAccess
from sparewatt.leasing.access.lease_sites import LeaseSites
from sparewatt.leasing.access.site_headers import Headers, reply_headers, request_headers
from sparewatt.link.traffic import StreamOver, TrafficStream
from sparewatt.protocol.link.traffic import PortOpen, TrafficOp
from sparewatt.store.lease_sites import LeaseSiteRow

HEAD_BYTES_MAX = 64 * KIB
"""Of a site's reply."""
READ_BYTES = 32 * KIB
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


@dataclass(slots=True, kw_only=True)
class SiteProxy:
    sites: LeaseSites
    access: LeaseAccess
    settings: EdgeSettings
    _sockets: Counter[str] = field(default_factory=Counter, init=False)
    """Open ones, by lease."""

    def middleware(self) -> Middleware:
        """Goes around all others."""

        @web.middleware
        async def choose(request: web.Request, handler: Handler) -> web.StreamResponse:
            if is_site_host(request.host, self.settings.sites_host):
                return await self.serve(request)
            return await handler(request)

        return choose

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._relay(request)
        except SparewattError as error:
            if request.writer.output_size:
                raise ConnectionError("the reply has begun, an error cannot follow") from None
            return _plain(error)

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        peer = request.remote or "unknown"
        if self.settings.behind_proxy and (error := bypass_error(peer, request.headers, self.settings)) is not None:
            raise error
        label = site_label(request.host, self.settings.sites_host or "")
        site = await self.sites.find(label) if label is not None else None
        if site is None:
            raise NotFound("There is no site at this address.")
        place = await self.access.locate(site.account_id, site.lease_id)
        async with self.access.open(
            place, PortOpen(order_id=place.order_id, port=site.port), of_visitors=True
        ) as stream:
            if wants_socket(request):
                with self._socket_place(site.lease_id):
                    return await self._serve_socket(request, stream, site)
            sending = asyncio.create_task(self._send(request, stream))
            try:
                return await _reply(request, stream)
            finally:
                sending.cancel()
                await asyncio.wait([sending])

    @contextmanager
    def _socket_place(self, lease_id: str) -> Iterator[None]:
        """Raises RateLimited."""
        if self._sockets[lease_id] >= SOCKETS_MAX:
            raise RateLimited("Too many WebSockets of this site are open. Try again later.")
        self._sockets[lease_id] += 1
        try:
            yield
        finally:
            self._sockets[lease_id] -= 1
            if not self._sockets[lease_id]:
                del self._sockets[lease_id]

    async def _serve_socket(
        self, request: web.Request, stream: TrafficStream, site: LeaseSiteRow
    ) -> web.StreamResponse:
        """A site that does not switch gives a usual reply."""
        await self._send(request, stream)
        parser, received = _ReplyParser(expects_socket=True), _received(stream)
        await _read_head(parser, received)
        if parser.status != HTTPStatus.SWITCHING_PROTOCOLS:
            return await _pass_reply(request, parser, received, stream, is_last=True)
        response = SwitchedResponse(status=parser.status)
        _set_headers(response, [*reply_headers(parser.headers), ("Upgrade", "websocket"), ("Connection", "Upgrade")])
        await response.prepare(request)
        visitor = VisitorBytes(request.protocol)
        visitor.attach()

        async def is_public() -> bool:
            return await self.sites.find(site.lease_id) == site

        await relay_socket(response, visitor, stream, first=parser.rest, received=received, is_public=is_public)
        return response

    async def _send(self, request: web.Request, stream: TrafficStream) -> None:
        scheme = "https" if self.settings.has_tls or self.settings.behind_proxy else "http"
        address = forwarded_address(request.remote or "unknown", request.headers, self.settings)
        headers = request_headers(request.headers.items(), address=address, scheme=scheme)
        length = request.content_length
        is_chunked = length is None and request.can_read_body
        is_socket = wants_socket(request)
        headers += [("Connection", "Upgrade"), ("Upgrade", "websocket")] if is_socket else [("Connection", "close")]
        headers += [("Content-Length", str(length))] if length is not None else []
        headers += [("Transfer-Encoding", "chunked")] if is_chunked else []
        lines = [f"{request.method} {request.raw_path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        try:
            await stream.send("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
            if length or is_chunked:
                async for piece in request.content.iter_chunked(READ_BYTES):
                    await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                if is_chunked:
                    await stream.send(b"0\r\n\r\n")
        except StreamOver:
            return  # the site answers before it has read everything, or not at all


@dataclass(slots=True)
class _ReplyParser:
    """Gets what httptools reads of a site's reply."""

    headers: Headers = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    status: int = 0
    is_over: bool = False
    expects_socket: bool = False
    rest: bytes = b""
    """What follows the head of a site that has switched to WebSocket."""
    unread_bytes: int = 0
    """Of a head that is not complete."""
    llhttp: httptools.HttpResponseParser | None = None

    def feed(self, data: bytes) -> None:
        """Raises LeasePortClosed for what is no HTTP."""
        if self.llhttp is None:
            self.llhttp = httptools.HttpResponseParser(self)
        try:
            self.llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if self.status != HTTPStatus.SWITCHING_PROTOCOLS:
                raise LeasePortClosed("The site changed the protocol, which was not asked for.") from None
            self.rest = data[switched.args[0] :]
        except httptools.HttpParserError:
            raise LeasePortClosed("What answers at this port does not speak HTTP.") from None
        self.unread_bytes += 0 if self.status else len(data)
        fields_bytes = sum(len(name) + len(value) for name, value in self.headers)
        if max(self.unread_bytes, fields_bytes) > HEAD_BYTES_MAX:
            raise LeasePortClosed("The head of the site's reply is too large.")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        code = self.llhttp.get_status_code() if self.llhttp is not None else 0
        if code == HTTPStatus.SWITCHING_PROTOCOLS and self.expects_socket and self._switches():
            self.status = code
        elif code < HTTPStatus.OK:  # 100 Continue and the like: the reply follows
            self.headers.clear()
        else:
            self.status = code

    def _switches(self) -> bool:
        return any(name.lower() == "upgrade" and value.lower() == "websocket" for name, value in self.headers)

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_over = bool(self.status)


async def _reply(request: web.Request, stream: TrafficStream) -> web.StreamResponse:
    parser, received = _ReplyParser(), _received(stream)
    await _read_head(parser, received)
    return await _pass_reply(request, parser, received, stream)


async def _read_head(parser: _ReplyParser, received: AsyncIterator[bytes]) -> None:
    async for data in received:
        parser.feed(data)
        if parser.status:
            return
    raise LeasePortClosed("The site closed the connection without an answer.")


def _set_headers(response: web.StreamResponse, headers: Headers) -> None:
    response.headers.clear()
    for name, value in headers:
        response.headers.add(name, value)
    response.headers.setdefault("Server", "sparewatt")


async def _pass_reply(
    request: web.Request,
    parser: _ReplyParser,
    received: AsyncIterator[bytes],
    stream: TrafficStream,
    *,
    is_last: bool = False,
) -> web.StreamResponse:
    """`is_last`: the connection ends with it, since a visitor who asked for a socket may have sent what is no HTTP."""
    response = web.StreamResponse(status=parser.status)
    _set_headers(response, reply_headers(parser.headers))
    if is_last:
        response.force_close()
    has_body = request.method != "HEAD" and parser.status not in _NO_BODY
    if has_body and "content-length" not in response.headers:
        response.enable_chunked_encoding() if request.version >= (1, 1) else response.force_close()
    await response.prepare(request)
    if has_body:
        await _send_body(response, parser, received, stream)
    await response.write_eof()
    return response


async def _send_body(
    response: web.StreamResponse, parser: _ReplyParser, received: AsyncIterator[bytes], stream: TrafficStream
) -> None:
    while True:
        pieces, parser.pieces = parser.pieces, []
        for piece in pieces:
            await response.write(piece)
        if parser.is_over:
            return
        data = await anext(received, None)
        if data is None:
            break
        parser.feed(data)
    is_framed = any(name.lower() in ("content-length", "transfer-encoding") for name, _ in parser.headers)
    if is_framed or (stream.end is not None and stream.end.code != "ended"):
        raise LeasePortClosed("The site's reply broke off.")


async def _received(stream: TrafficStream) -> AsyncIterator[bytes]:
    """Until the site sends no more."""
    while (item := await stream.receive()) is not None and item.op is not TrafficOp.EOF:
        yield item.payload


def _plain(error: SparewattError) -> web.Response:
    """A line of text: an error page of ours would be a page of ours."""
    text = f"{error.status}: {error.message}\n"
    headers = {"server": "sparewatt", "cache-control": "no-store", "x-content-type-options": "nosniff"}
    reply = web.Response(text=text, status=error.status, headers=headers)
    reply.force_close()
    return reply
