"""The link on picows: WebSocket frames parsed and masked in C, each handed over by a call.

Both ends: `dial_picows` for a node, `adopt` for a gateway whose own HTTP front end has read the request already. picows
leaves fragments, pings and closing to us. Its transports are asyncio's own here, not those of aiofastnet.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket as sockets
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import aiohappyeyeballs
from picows import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSError,
    WSFrame,
    WSListener,
    WSMsgType,
    WSParsedURL,
    WSTransport,
    ws_connect,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # as picows' own api.py does: it has no stub

from sparewatt.core.errors import LinkLost, ProtocolViolation
from sparewatt.core.fair_queue import FairQueue
from sparewatt.core.limits import LINK_BATCH_BYTES, LINK_HANDSHAKE_S, LINK_MESSAGE_BYTES_MAX, LINK_READ_BUFFER_BYTES
from sparewatt.link.sockets import BROKEN, CLOSE_S, CLOSED, NOT_BINARY, Socket

_LOG = logging.getLogger("sparewatt.picows")
_LOG.setLevel(logging.CRITICAL)  # it would log every connection, and what a stranger sent wrong; `lost` says all that
_HEADER_BYTES_MAX = 14
_COPIED_BYTES_MAX = 8192
"""A longer message picows hands to the transport beside a header in memory that its next frame writes over."""
_HAPPY_EYEBALLS_S = 0.25
_UPGRADE = re.compile(rb"^connection:[^\r\n]*\bupgrade\b[^\r\n]*", re.IGNORECASE | re.MULTILINE)
_BINARY = WSMsgType.BINARY
_WS_SCHEMES = {"http": "ws", "https": "wss"}


class PicowsSocket(Socket, WSListener):
    """Either end of a picows WebSocket."""

    def __init__(self, on_open: Callable[[Socket], None] | None = None, line: FairQueue | None = None) -> None:
        """`line`: where it waits with others before it is read on."""
        Socket.__init__(self)
        self._on_open = on_open
        self._read_queue = line
        self._tick_bytes = 0
        self._tick = -1
        """In which turn of the event loop."""
        self._transport: WSTransport | None = None
        self._parts: bytearray | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, message: bytes) -> None:
        if self._end is not None or self._transport is None:
            return
        if len(message) <= _COPIED_BYTES_MAX:
            self._transport.send(_BINARY, message)
        else:
            framed = bytearray(_HEADER_BYTES_MAX) + message
            self._transport.send_reuse_external_bytearray(_BINARY, framed, _HEADER_BYTES_MAX)

    async def wait_closed(self) -> None:
        if self._transport is not None:
            with suppress(WSError):  # `lost` has told
                await self._transport.wait_disconnected()

    def _close(self, code: int = 1000) -> None:
        """The other end answers; then the connection is closed, and what is still unread does not reset it."""
        if self._transport is not None:
            self._transport.send_close(WSCloseCode(code))
            self._close_timer = asyncio.get_running_loop().call_later(CLOSE_S, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # what picows calls

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        if self._on_open is not None:
            self._on_open(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """A whole message in one frame, as nearly all are, is heard right here: a call less for each."""
        if (
            frame.msg_type is _BINARY
            and frame.fin
            and self._end is None
            and self._parts is None
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3 or transport.is_close_frame_sent)
        ):
            try:
                self._receive(frame.get_payload_as_bytes())
            except Exception as error:  # noqa: BLE001 (as in `_hear`)
                self._on_listener_error(error)
            line, size = self._read_queue, frame.payload_size
            if line is not None and (turn := line.tick_number()) == self._tick:
                size = self._tick_bytes = self._tick_bytes + size
            elif line is not None:
                self._tick, self._tick_bytes = turn, size
            if size > LINK_BATCH_BYTES:
                self._pause_reading(transport.underlying_transport)
        else:
            self._on_rare_frame(transport, frame)

    def _on_rare_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if transport.is_close_frame_sent:
            self._on_frame_after_close(transport, is_close=kind == WSMsgType.CLOSE)
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._fail(ProtocolViolation(BROKEN))
        elif kind == _BINARY and frame.fin and self._parts is None:
            return  # it is over, and nobody listens
        elif kind == WSMsgType.PING:
            if not self.is_paused:  # a peer that pings and reads nothing must not fill our memory
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._answer_close(transport)
        elif kind == WSMsgType.TEXT:
            self._fail(ProtocolViolation(NOT_BINARY), code=1003)
        elif kind != WSMsgType.PONG:
            self._add_part(frame, begins=kind == _BINARY)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._end is None and transport.is_close_frame_sent:  # by picows, for what it could not parse
            self._finish(ProtocolViolation(BROKEN))
        self._mark_lost()
        if self._close_timer is not None:
            self._close_timer.cancel()

    def pause_writing(self) -> None:
        self._pause()

    def resume_writing(self) -> None:
        self._resume()

    # inside

    def _pause_reading(self, below: asyncio.Transport) -> None:
        """Read on when all others had a turn: a socket holds megabytes, and would be read in one go."""
        self._tick_bytes = 0
        if not below.is_reading():
            return
        below.pause_reading()
        if self._read_queue is None:
            asyncio.get_running_loop().call_soon(_resume_reading, below)
        else:
            self._read_queue.enqueue(self, partial(_resume_reading, below))

    def _on_frame_after_close(self, transport: WSTransport, *, is_close: bool) -> None:
        """picows goes on reading after what it refused, and would hand over even a message that is too long."""
        if self._end is None:
            self._finish(ProtocolViolation(BROKEN))
        if is_close:
            self._answer_close(transport)

    def _answer_close(self, transport: WSTransport) -> None:
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        self._mark_lost()
        transport.disconnect()
        if self._close_timer is None:
            self._close_timer = asyncio.get_running_loop().call_later(CLOSE_S, self._abort)

    def _add_part(self, frame: WSFrame, *, begins: bool) -> None:
        """A message in pieces: bounded as a whole, and none inside another."""
        if begins != (self._parts is None):
            self._fail(ProtocolViolation(BROKEN))
            return
        parts = self._parts = bytearray() if self._parts is None else self._parts
        if len(parts) + frame.payload_size >= LINK_MESSAGE_BYTES_MAX:
            self._fail(ProtocolViolation(BROKEN), code=1009)
            return
        parts += frame.get_payload_as_bytes()
        if frame.fin:
            self._parts = None
            self._on_message(bytes(parts))


def _resume_reading(below: asyncio.Transport) -> None:
    if not below.is_closing() and not below.is_reading():
        below.resume_reading()


def adopt(
    transport: asyncio.Transport, head: bytes, on_socket: Callable[[Socket], None], *, line: FairQueue | None = None
) -> asyncio.BaseProtocol:
    """Make a WebSocket of a connection to our own server, from inside its `data_received`.

    `head` is everything that was read of it so far: a whole request, and what came after. A good one is answered with
    101 and `on_socket` is called before this returns; a bad one with 400, and the connection ends. The protocol that
    was there hears nothing more of it, not even `connection_lost`. In `line` sockets that have much to say wait to be
    read on.
    """
    protocol = _server_protocol(on_socket, line)
    transport.pause_reading()  # uvloop chooses how it reads when it begins to
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    _feed(protocol, _normalise_upgrade_header(head))
    if not transport.is_closing():
        transport.resume_reading()
    return protocol


def _normalise_upgrade_header(head: bytes) -> bytes:
    """picows knows no `Connection: keep-alive, Upgrade`, which is good HTTP."""
    start, end, rest = head.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"Connection: Upgrade", start, count=1) + end + rest


def _feed(protocol: asyncio.BufferedProtocol, head: bytes) -> None:
    while head:
        buffer = memoryview(protocol.get_buffer(len(head)))
        taken = min(len(head), len(buffer))
        buffer[:taken] = head[:taken]
        protocol.buffer_updated(taken)
        head = head[taken:]


class _BoundedReadProtocol(WSProtocol):  # type: ignore[misc]
    """Takes little at a time. picows doubles its buffer whenever a read fills it, and hands over all that is in it
    even to who has asked for a rest: of a busy link that was a megabyte in one go.
    """

    def get_buffer(self, size_hint: int) -> memoryview:
        buffer: memoryview = super().get_buffer(size_hint)
        return buffer[:LINK_BATCH_BYTES]


def _server_protocol(on_socket: Callable[[Socket], None], line: FairQueue | None) -> asyncio.BufferedProtocol:
    protocol: asyncio.BufferedProtocol = _BoundedReadProtocol(
        None,  # host
        None,  # path
        False,  # is_client_side
        lambda _request: PicowsSocket(on_socket, line),
        _LOG,
        True,  # disconnect_on_exception
        LINK_HANDSHAKE_S,
        False,  # enable_auto_ping: the link has pings of its own
        LINK_HANDSHAKE_S,
        LINK_HANDSHAKE_S,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,  # enable_auto_pong
        LINK_MESSAGE_BYTES_MAX - 1,
        None,  # extra_headers
        LINK_READ_BUFFER_BYTES,
    )
    return protocol


async def dial_picows(url: str, *, tls: ssl.SSLContext | None = None) -> Socket:
    """Raises LinkLost, picows' WSError or OSError. No redirect is followed: nodes sign the name that they dialled."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(scheme=_WS_SCHEMES.get(parts.scheme, parts.scheme)))
    socket = PicowsSocket()
    below: list[sockets.socket] = []

    async def connect(to: WSParsedURL) -> sockets.socket:
        below.append(await _connect(to))
        return below[0]

    try:
        await _upgrade(address, socket, connect, tls=tls)
    except BaseException:
        socket.abort()
        _hang_up(below)
        raise
    if not socket.is_open:  # the other end left without an answer, of which picows says nothing
        raise LinkLost(CLOSED)
    return socket


async def _upgrade(
    address: str,
    socket: PicowsSocket,
    connect: Callable[[WSParsedURL], Awaitable[sockets.socket | None]],
    *,
    tls: ssl.SSLContext | None,
) -> None:
    await ws_connect(
        lambda *_: socket,
        address,
        ssl_context=tls,
        websocket_handshake_timeout=None,  # whoever dials has a deadline for all of it
        logger_name=_LOG,
        enable_auto_pong=False,
        max_frame_size=LINK_MESSAGE_BYTES_MAX - 1,
        max_redirects=0,
        read_buffer_init_size=LINK_READ_BUFFER_BYTES,
        socket_factory=connect,
        use_aiofastnet=False,
    )


def _hang_up(below: list[sockets.socket]) -> None:
    """picows leaves the connection open when whoever waits for its answer does so no longer."""
    for raw in below:
        with suppress(OSError):  # it is closed already
            raw.shutdown(sockets.SHUT_RDWR)


async def _connect(url: WSParsedURL) -> sockets.socket:
    """As aiohttp does: all addresses of the name, IPv6 and IPv4 in turn."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(url.host, url.port, type=sockets.SOCK_STREAM, proto=sockets.IPPROTO_TCP)
    return await aiohappyeyeballs.start_connection(
        found, happy_eyeballs_delay=_HAPPY_EYEBALLS_S, interleave=1, loop=loop
    )
