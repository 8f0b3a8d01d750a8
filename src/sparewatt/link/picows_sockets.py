"""The link on picows: WebSocket frames are parsed and masked in C, and each is passed on by a callback.

Both ends: `dial_picows` for a node, `adopt` for a gateway whose HTTP front end has already read the request. picows
leaves fragmentation, pings and the close handshake to its user. Transports are asyncio's, not those of aiofastnet.
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

from sparewatt.core.cleanup import on_failure
from sparewatt.core.errors import LinkLost, ProtocolViolation
from sparewatt.core.fair_queue import FairQueue
from sparewatt.core.limits import KIB, LINK_MESSAGE_BYTES_MAX
from sparewatt.link.sockets import (
    BROKEN,
    CLOSE_S,
    CLOSED,
    CLOSED_FOR,
    LINK_BATCH_BYTES,
    LINK_HANDSHAKE_S,
    NOT_BINARY,
    Socket,
)

_LOG = logging.getLogger("sparewatt.picows")
_LOG.setLevel(logging.CRITICAL)  # picows would log every connection and parse error, which `on_lost` reports already
LINK_READ_BUFFER_BYTES = 4 * KIB
"""The first read buffer of a link; it doubles when it is full. Ten thousand idle links take 40 MB."""
_HEADER_BYTES_MAX = 14
_COPIED_BYTES_MAX = 8192
"""picows passes a longer message on uncopied, behind a header whose memory its next frame overwrites."""
_CLOSE_CODE_BYTES = 2
_HAPPY_EYEBALLS_S = 0.25
_UPGRADE = re.compile(rb"^connection:[^\r\n]*\bupgrade\b[^\r\n]*", re.IGNORECASE | re.MULTILINE)
_BINARY = WSMsgType.BINARY
_WS_SCHEMES = {"http": "ws", "https": "wss"}


class PicowsSocket(Socket, WSListener):
    """Either end of a picows WebSocket."""

    def __init__(self, on_open: Callable[[Socket], None] | None = None, read_queue: FairQueue | None = None) -> None:
        """`read_queue`: sockets that have been read enough wait there, so that others are read first."""
        Socket.__init__(self)
        self._on_open = on_open
        self._read_queue = read_queue
        self._tick_bytes = 0
        """Read in the tick `_tick` of the event loop."""
        self._tick = -1
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
            with suppress(WSError):  # `on_lost` has reported it
                await self._transport.wait_disconnected()

    def _close(self, code: int = 1000) -> None:
        """Send a close frame and wait for the peer's. Closing TCP at once would reset it and lose unread data."""
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
        """Fast path: nearly every message is one binary frame, and is received without another call."""
        if (
            frame.msg_type is _BINARY
            and frame.fin
            and self._end is None
            and self._parts is None
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3 or transport.is_close_frame_sent)
        ):
            try:
                self._receive(frame.get_payload_as_bytes())
            except Exception as error:  # noqa: BLE001 (as in `Socket._on_message`)
                self._on_listener_error(error)
            queue, size = self._read_queue, frame.payload_size
            if queue is not None and (tick := queue.tick_number()) == self._tick:
                size = self._tick_bytes = self._tick_bytes + size
            elif queue is not None:
                self._tick, self._tick_bytes = tick, size
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
            return  # the socket has ended, and has no listener any more
        elif kind == WSMsgType.PING:
            if not self.is_paused:  # a peer that pings and reads nothing must not fill our memory
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            code = int.from_bytes(frame.get_payload_as_bytes()[:_CLOSE_CODE_BYTES], "big")
            self._answer_close(transport, why=CLOSED_FOR.get(code, CLOSED))
        elif kind == WSMsgType.TEXT:
            self._fail(ProtocolViolation(NOT_BINARY), code=1003)
        elif kind != WSMsgType.PONG:
            self._add_part(frame, begins=kind == _BINARY)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._end is None and transport.is_close_frame_sent:  # picows sent it, for a frame that it could not parse
            self._finish(ProtocolViolation(BROKEN))
        self._mark_lost()
        if self._close_timer is not None:
            self._close_timer.cancel()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self._resume()

    # internals

    def _pause_reading(self, tcp: asyncio.Transport) -> None:
        """Fair queueing: read the others before reading on. A socket buffers megabytes, a long block for the loop."""
        self._tick_bytes = 0
        if not tcp.is_reading():
            return
        tcp.pause_reading()
        if self._read_queue is None:
            asyncio.get_running_loop().call_soon(_resume_reading, tcp)
        else:
            self._read_queue.enqueue(self, partial(_resume_reading, tcp))

    def _on_frame_after_close(self, transport: WSTransport, *, is_close: bool) -> None:
        """picows reads on after a frame that it refused, and would pass on even a message that is too long."""
        if self._end is None:
            self._finish(ProtocolViolation(BROKEN))
        if is_close:
            self._answer_close(transport)

    def _answer_close(self, transport: WSTransport, *, why: str = CLOSED) -> None:
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        self._mark_lost(why)
        transport.disconnect()
        if self._close_timer is None:
            self._close_timer = asyncio.get_running_loop().call_later(CLOSE_S, self._abort)

    def _add_part(self, frame: WSFrame, *, begins: bool) -> None:
        """A fragmented message: bounded as a whole, and not interleaved with another."""
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


def _resume_reading(tcp: asyncio.Transport) -> None:
    if not tcp.is_closing() and not tcp.is_reading():
        tcp.resume_reading()


def adopt(
    transport: asyncio.Transport,
    head: bytes,
    on_socket: Callable[[Socket], None],
    *,
    read_queue: FairQueue | None = None,
) -> asyncio.BaseProtocol:
    """Upgrade a connection of our own server to a WebSocket, from inside its `data_received`.

    `head` is everything read from it so far: a whole request, and what followed. A valid upgrade is answered with 101,
    and `on_socket` is called before this returns; an invalid one with 400, and the connection ends. The protocol before
    is not called again, not even `connection_lost`. Sockets with much to read wait in `read_queue` between reads.
    """
    protocol = _server_protocol(on_socket, read_queue)
    transport.pause_reading()  # uvloop picks its way of reading from the protocol when it starts to read
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    _feed(protocol, _normalise_upgrade_header(head))
    if not transport.is_closing():
        transport.resume_reading()
    return protocol


def _normalise_upgrade_header(head: bytes) -> bytes:
    """picows does not accept `Connection: keep-alive, Upgrade`, which is valid HTTP."""
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
    """Reads at most `LINK_BATCH_BYTES` at a time.

    picows doubles its buffer whenever a read fills it, and passes on all of it even after `pause_reading`: for a busy
    link that was a megabyte in one tick.
    """

    def get_buffer(self, size_hint: int) -> memoryview:
        buffer: memoryview = super().get_buffer(size_hint)
        return buffer[:LINK_BATCH_BYTES]


def _server_protocol(on_socket: Callable[[Socket], None], read_queue: FairQueue | None) -> asyncio.BufferedProtocol:
    protocol: asyncio.BufferedProtocol = _BoundedReadProtocol(
        None,  # host
        None,  # path
        False,  # is_client_side
        lambda _request: PicowsSocket(on_socket, read_queue),
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
    """Raises LinkLost, picows' WSError or OSError. Follows no redirect: nodes sign the host that they dialled."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(scheme=_WS_SCHEMES.get(parts.scheme, parts.scheme)))
    socket = PicowsSocket()
    connected: list[sockets.socket] = []

    async def connect(to: WSParsedURL) -> sockets.socket:
        connected.append(await _connect(to))
        return connected[0]

    def abort() -> None:
        socket.abort()
        for tcp in connected:  # picows leaves the connection open when its caller is cancelled
            with suppress(OSError):
                tcp.shutdown(sockets.SHUT_RDWR)

    with on_failure(abort):
        await _upgrade(address, socket, connect, tls=tls)
    if not socket.is_open:  # the peer closed without a reply, which picows does not raise
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
        websocket_handshake_timeout=None,  # the caller has a deadline for all of it
        logger_name=_LOG,
        enable_auto_pong=False,
        max_frame_size=LINK_MESSAGE_BYTES_MAX - 1,
        max_redirects=0,
        read_buffer_init_size=LINK_READ_BUFFER_BYTES,
        socket_factory=connect,
        use_aiofastnet=False,
    )


async def _connect(url: WSParsedURL) -> sockets.socket:
    """Happy Eyeballs, as aiohttp does: all addresses of the name, IPv6 and IPv4 alternating."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(url.host, url.port, type=sockets.SOCK_STREAM, proto=sockets.IPPROTO_TCP)
    return await aiohappyeyeballs.start_connection(
        found, happy_eyeballs_delay=_HAPPY_EYEBALLS_S, interleave=1, loop=loop
    )
