"""Streams of lease traffic on one socket, for either end: numbered, with flow control by credit in both directions.

It knows frames, not sockets, and not what a stream is for. The gateway opens streams, the node accepts them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.core.errors import LinkError, LinkLost, ProtocolViolation
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import decode_message, encode_raw_frame, split_frames
from sparewatt.protocol.link.traffic import (
    TRAFFIC_PIECE_BYTES,
    TRAFFIC_STREAMS_MAX,
    TRAFFIC_WINDOW_BYTES,
    StreamEnd,
    StreamOpen,
    TerminalResize,
    TrafficOp,
    decode_credit,
    decode_open,
    encode_credit,
    frame_cost,
)

CREDIT_STEP_BYTES = TRAFFIC_WINDOW_BYTES // 4
"""Credit is sent when so much was read: a frame for every read would double their number."""
_STREAM_MAX = (1 << 32) - 1


class StreamOver(Exception):
    """Nothing can be sent any more. `end` of the stream says why."""


class StreamItem(NamedTuple):
    op: TrafficOp
    """OUT or ERR with bytes; EOF; or RESIZE."""
    payload: bytes
    cost: int = 0


class StreamAcceptor(Protocol):
    """At a node: serves the streams that the gateway opens. Must not block."""

    def accept(self, stream: TrafficStream, wanted: StreamOpen) -> None: ...

    def drop(self, stream: TrafficStream) -> None:
        """The gateway cancelled it, or the socket is gone."""


@dataclass(slots=True, eq=False)
class TrafficStream:
    """One end of one stream. One task may receive while another sends."""

    _link: TrafficLink
    number: int
    end: StreamEnd | None = field(init=False, default=None)
    """How it ended; None while it is open. What came before can still be received."""
    is_opened: bool = field(init=False, default=False)
    """Of a gateway's end: whether the node has said so."""
    moved_bytes: int = field(init=False, default=0)
    """Received and sent: grows as long as there is traffic."""
    _items: deque[StreamItem] = field(init=False, default_factory=deque)
    _credit: int = field(init=False, default=TRAFFIC_WINDOW_BYTES)
    """What may still be sent."""
    _window_left: int = field(init=False, default=TRAFFIC_WINDOW_BYTES)
    """What the peer may still send."""
    _credit_due: int = field(init=False, default=0)
    _has_eof: bool = field(init=False, default=False)
    _has_sent_eof: bool = field(init=False, default=False)
    _received: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _sendable: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    # for whoever uses the stream

    async def wait_opened(self) -> None:
        """Until the node has opened it, or it has ended."""
        while not self.is_opened and self.end is None:
            self._received.clear()
            await self._received.wait()

    async def receive(self) -> StreamItem | None:
        """The next item; None after the last one of a stream that has ended."""
        while not self._items:
            if self.end is not None:
                return None
            self._received.clear()
            await self._received.wait()
        item = self._items.popleft()
        self._grant(item.cost)
        return item

    async def send(self, data: bytes, op: TrafficOp = TrafficOp.OUT) -> None:
        """Waits while the peer does not keep up (back-pressure). Raises StreamOver."""
        for at in range(0, len(data), TRAFFIC_PIECE_BYTES):
            piece = data[at : at + TRAFFIC_PIECE_BYTES]
            cost = frame_cost(piece)
            while self._credit < cost and self.end is None:
                self._sendable.clear()
                await self._sendable.wait()
            if self.end is not None or self._has_sent_eof:
                raise StreamOver
            self._credit -= cost
            self.moved_bytes += len(piece)
            self._link.put(op, self, piece)

    def send_eof(self) -> None:
        if self.end is None and not self._has_sent_eof:
            self._has_sent_eof = True
            self._link.put(TrafficOp.EOF, self)

    def resize(self, size: TerminalResize) -> None:
        if self.end is None:
            self._link.put(TrafficOp.RESIZE, self, msgspec.json.encode(size))

    def opened(self) -> None:
        """By the node."""
        if self.end is None:
            self._link.put(TrafficOp.OPENED, self)

    def finish(self, end: StreamEnd) -> None:
        """By the node, after all that it sent."""
        if self.end is None:
            self._link.put(TrafficOp.END, self, msgspec.json.encode(end))
            self._close(end)

    def cancel(self, end: StreamEnd | None = None) -> None:
        """By the gateway."""
        if self.end is None:
            self._link.put(TrafficOp.CANCEL, self)
            self._close(end or StreamEnd(code="cancelled"))

    # for the link

    def take(self, op: TrafficOp, payload: bytes) -> None:
        """Raises ProtocolViolation."""
        match op:
            case TrafficOp.OUT | TrafficOp.ERR:
                self._take_data(op, payload)
            case TrafficOp.CREDIT:
                self._take_credit(decode_credit(payload))
            case TrafficOp.EOF:
                if self._has_eof:
                    raise ProtocolViolation("a stream has one EOF")
                self._has_eof = True
                self._items.append(StreamItem(op, b""))
            case TrafficOp.RESIZE:
                decode_message(payload, TerminalResize)
                if self._items and self._items[-1].op is TrafficOp.RESIZE:
                    self._items.pop()  # only the last one counts
                self._items.append(StreamItem(op, payload))
            case TrafficOp.OPENED:
                self.is_opened = True
            case _:
                self._close(decode_message(payload, StreamEnd))
                return
        self._received.set()

    def lose(self, end: StreamEnd) -> None:
        """The socket is gone, or the gateway cancelled it."""
        if self.end is None:
            self._close(end)

    def _take_data(self, op: TrafficOp, payload: bytes) -> None:
        cost = frame_cost(payload)
        if cost > self._window_left or not payload or self._has_eof:
            raise ProtocolViolation("bytes came beyond the window, after their end, or none at all")
        self._window_left -= cost
        self.moved_bytes += len(payload)
        self._items.append(StreamItem(op, payload, cost))

    def _take_credit(self, n_bytes: int) -> None:
        if self._credit + n_bytes > TRAFFIC_WINDOW_BYTES:
            raise ProtocolViolation("more credit came than was used")
        self._credit += n_bytes
        self._sendable.set()

    def _grant(self, cost: int) -> None:
        self._credit_due += cost
        if self._credit_due >= CREDIT_STEP_BYTES and self.end is None:
            self._window_left += self._credit_due
            self._link.put(TrafficOp.CREDIT, self, encode_credit(self._credit_due))
            self._credit_due = 0

    def _close(self, end: StreamEnd) -> None:
        self.end = end
        self._link.forget(self)
        self._received.set()
        self._sendable.set()


class TrafficLink:
    """All streams on one authenticated socket. Implements SocketListener."""

    def __init__(self, *, acceptor: StreamAcceptor | None = None) -> None:
        """`acceptor`: at a node. None: at a gateway, which opens streams."""
        self._acceptor = acceptor
        self._queue = SendQueue()
        self._streams: dict[int, TrafficStream] = {}
        self._last_number = 0
        self._socket: Socket | None = None
        self.lost: asyncio.Future[LinkError] = asyncio.get_running_loop().create_future()
        """Set when the socket is gone."""

    def start(self, socket: Socket) -> None:
        self._socket = socket
        self._queue.attach(socket, on_stuck=self.on_lost)
        socket.attach(self)

    @property
    def count(self) -> int:
        return len(self._streams)

    @property
    def opened_count(self) -> int:
        """Streams that were ever opened."""
        return self._last_number

    @property
    def has_room(self) -> bool:
        return not self.lost.done() and len(self._streams) < TRAFFIC_STREAMS_MAX and self._last_number < _STREAM_MAX

    def open(self, wanted: StreamOpen) -> TrafficStream:
        """By the gateway, which has checked `has_room`."""
        self._last_number += 1
        stream = self._streams[self._last_number] = TrafficStream(self, self._last_number)
        self.put(TrafficOp.OPEN, stream, msgspec.json.encode(wanted))
        return stream

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self.on_lost(LinkLost("closed here"))

    def put(self, op: TrafficOp, stream: TrafficStream, payload: bytes = b"") -> None:
        self._queue.put(encode_raw_frame(op, stream.number, payload))

    def forget(self, stream: TrafficStream) -> None:
        if self._streams.get(stream.number) is stream:
            del self._streams[stream.number]

    # called by the socket

    def receive(self, message: bytes) -> None:
        """Raises ProtocolViolation."""
        for number_of_op, number, payload in split_frames(message):
            try:
                op = TrafficOp(number_of_op)
            except ValueError:
                raise ProtocolViolation(f"unknown operation {number_of_op}") from None
            self._take(op, number, payload)

    def resume(self) -> None:
        self._queue.resume()

    def on_lost(self, error: LinkError) -> None:
        if self.lost.done():
            return
        self.lost.set_result(error)
        self._queue.drop()
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.lose(StreamEnd(code="lost"))
            if self._acceptor is not None:
                self._acceptor.drop(stream)

    def _take(self, op: TrafficOp, number: int, payload: bytes) -> None:
        if self._acceptor is not None and op is TrafficOp.OPEN:
            self._accept(self._acceptor, number, payload)
            return
        is_of_node = op in (TrafficOp.OPENED, TrafficOp.ERR, TrafficOp.END)
        is_of_gateway = op in (TrafficOp.OPEN, TrafficOp.RESIZE, TrafficOp.CANCEL)
        if number > self._last_number or (is_of_node if self._acceptor is not None else is_of_gateway):
            raise ProtocolViolation(f"{op.name} does not belong here")
        stream = self._streams.get(number)
        if stream is None:
            return  # it ended while the frame was in flight
        if op is TrafficOp.CANCEL and self._acceptor is not None:
            stream.lose(StreamEnd(code="cancelled"))
            self._acceptor.drop(stream)
        else:
            stream.take(op, payload)

    def _accept(self, acceptor: StreamAcceptor, number: int, payload: bytes) -> None:
        if number <= self._last_number:
            raise ProtocolViolation("OPEN on a number that was used")
        wanted = decode_open(payload)
        self._last_number = number
        stream = TrafficStream(self, number)
        if len(self._streams) >= TRAFFIC_STREAMS_MAX:
            stream.finish(StreamEnd(code="too_many"))
            return
        self._streams[number] = stream
        acceptor.accept(stream, wanted)
