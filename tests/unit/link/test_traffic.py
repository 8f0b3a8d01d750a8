"""Streams of lease traffic between two ends: order, flow control, bounds, and what a peer may not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.link.traffic import CREDIT_STEP_BYTES, StreamItem, StreamOver, TrafficLink, TrafficStream
from sparewatt.protocol.link.frames import encode_raw_frame
from sparewatt.protocol.link.traffic import (
    TRAFFIC_FRAME_COST,
    TRAFFIC_PIECE_BYTES,
    TRAFFIC_STREAMS_MAX,
    TRAFFIC_WINDOW_BYTES,
    LogsOpen,
    PortOpen,
    StreamEnd,
    StreamOpen,
    TerminalResize,
    TrafficOp,
    encode_credit,
)
from sparewatt.testing.memory_socket import MemorySocket, socket_pair
from tests.waiting import CEILING_S, turns, until

ORDER = "0x" + "01" * 32
WANTED = PortOpen(order_id=ORDER, port=80)


@dataclass(slots=True)
class Acceptor:
    """Implements StreamAcceptor; a test plays the node's part."""

    accepted: list[tuple[TrafficStream, StreamOpen]] = field(default_factory=list)
    dropped: list[TrafficStream] = field(default_factory=list)

    def accept(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        self.accepted.append((stream, wanted))

    def drop(self, stream: TrafficStream) -> None:
        self.dropped.append(stream)


@dataclass(slots=True)
class Pair:
    gateway: TrafficLink
    node: TrafficLink
    acceptor: Acceptor
    gateway_socket: MemorySocket

    async def open(self, wanted: StreamOpen = WANTED) -> tuple[TrafficStream, TrafficStream]:
        before = len(self.acceptor.accepted)
        near = self.gateway.open(wanted)
        await until(lambda: len(self.acceptor.accepted) > before)
        far = self.acceptor.accepted[-1][0]
        far.opened()
        await near.wait_opened()
        return near, far


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    near, far = socket_pair()
    acceptor = Acceptor()
    made = Pair(TrafficLink(), TrafficLink(acceptor=acceptor), acceptor, near)
    made.gateway.start(near)
    made.node.start(far)
    yield made
    made.gateway.close()
    made.node.close()


async def received(stream: TrafficStream) -> list[StreamItem]:
    """All items until the end."""
    found = []
    async with asyncio.timeout(CEILING_S):
        while (item := await stream.receive()) is not None:
            found.append(item)
    return found


def frame(op: TrafficOp, number: int, payload: bytes = b"") -> bytes:
    return encode_raw_frame(op, number, payload)


async def test_bytes_go_both_ways_in_order_and_tell_stdout_from_stderr(pair: Pair) -> None:
    near, far = await pair.open()
    await far.send(b"one")
    await far.send(b"two", TrafficOp.ERR)
    await near.send(b"input")
    near.send_eof()
    far.finish(StreamEnd(exit_code=3))
    assert [(item.op, item.payload) for item in await received(near)] == [
        (TrafficOp.OUT, b"one"),
        (TrafficOp.ERR, b"two"),
    ]
    assert near.end == StreamEnd(exit_code=3)
    assert pair.gateway.count == pair.node.count == 0


async def test_what_the_node_is_asked_for_arrives_as_it_was_asked(pair: Pair) -> None:
    wanted = LogsOpen(order_id=ORDER, follow=True, tail=7)
    await pair.open(wanted)
    assert pair.acceptor.accepted[-1][1] == wanted


async def test_a_sender_waits_for_a_reader_that_does_not_keep_up(pair: Pair) -> None:
    near, far = await pair.open()
    sending = asyncio.create_task(far.send(bytes(3 * TRAFFIC_WINDOW_BYTES)))
    await turns(200)
    assert not sending.done()
    assert far.moved_bytes < TRAFFIC_WINDOW_BYTES
    taken = 0
    async with asyncio.timeout(CEILING_S):
        while taken < 3 * TRAFFIC_WINDOW_BYTES:
            item = await near.receive()
            assert item is not None
            taken += len(item.payload)
        await sending
    assert taken == 3 * TRAFFIC_WINDOW_BYTES


async def test_a_stalled_stream_does_not_hold_up_another(pair: Pair) -> None:
    _, stalled = await pair.open()
    sending = asyncio.create_task(stalled.send(bytes(2 * TRAFFIC_WINDOW_BYTES)))
    near, far = await pair.open()
    await far.send(b"quick")
    item = await asyncio.wait_for(near.receive(), CEILING_S)
    assert item is not None
    assert item.payload == b"quick"
    assert not sending.done()
    sending.cancel()


async def test_many_small_pieces_use_up_the_window_by_their_overhead(pair: Pair) -> None:
    _, far = await pair.open()
    pieces = TRAFFIC_WINDOW_BYTES // (TRAFFIC_FRAME_COST + 1)
    for _ in range(pieces):
        await far.send(b"x")
    one_more = asyncio.create_task(far.send(b"x"))
    await turns()
    assert not one_more.done()
    one_more.cancel()


async def test_credit_comes_in_steps_and_not_for_every_read(pair: Pair) -> None:
    near, far = await pair.open()
    await far.send(bytes(TRAFFIC_PIECE_BYTES))
    await until(lambda: near.moved_bytes == TRAFFIC_PIECE_BYTES)
    await near.receive()
    await turns()
    assert far._credit == TRAFFIC_WINDOW_BYTES - TRAFFIC_PIECE_BYTES - TRAFFIC_FRAME_COST
    while near._credit_due:
        await far.send(bytes(TRAFFIC_PIECE_BYTES))
        await near.receive()
    await until(lambda: far._credit == TRAFFIC_WINDOW_BYTES)
    assert far.moved_bytes >= CREDIT_STEP_BYTES - 4 * TRAFFIC_FRAME_COST


async def test_a_cancelled_stream_is_dropped_at_the_node_and_late_frames_are_ignored(pair: Pair) -> None:
    near, far = await pair.open()
    near.cancel()
    await far.send(b"crosses the cancellation")
    await until(lambda: pair.acceptor.dropped == [far])
    with pytest.raises(StreamOver):
        await far.send(b"more")
    assert near.end == StreamEnd(code="cancelled")
    assert not pair.gateway.lost.done()


async def test_a_lost_socket_ends_every_stream(pair: Pair) -> None:
    near, far = await pair.open()
    waiting = asyncio.create_task(near.receive())
    pair.gateway_socket.abort()
    assert await asyncio.wait_for(waiting, CEILING_S) is None
    assert near.end == StreamEnd(code="lost")
    await until(lambda: pair.acceptor.dropped == [far])
    assert not pair.gateway.has_room


async def test_what_came_before_the_end_can_still_be_received(pair: Pair) -> None:
    near, far = await pair.open()
    await far.send(b"last words")
    far.finish(StreamEnd())
    await until(lambda: near.end is not None)
    assert [item.payload for item in await received(near)] == [b"last words"]


async def test_of_many_sizes_of_a_terminal_the_last_counts(pair: Pair) -> None:
    near, far = await pair.open()
    for columns in range(1, 100):
        near.resize(TerminalResize(columns, 24))
    near.send_eof()
    await until(lambda: len(far._items) == 2)
    item = await far.receive()
    assert item is not None
    assert (item.op, msgspec.json.decode(item.payload)) == (TrafficOp.RESIZE, {"columns": 99, "rows": 24})


async def test_a_node_refuses_one_stream_too_many(pair: Pair) -> None:
    for _ in range(TRAFFIC_STREAMS_MAX):
        await pair.open()
    assert not pair.gateway.has_room
    surplus = pair.gateway.open(WANTED)
    await asyncio.wait_for(surplus.wait_opened(), CEILING_S)
    assert surplus.end == StreamEnd(code="too_many")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(frame(TrafficOp.OUT, 1, bytes(TRAFFIC_WINDOW_BYTES)), id="beyond the window"),
        pytest.param(frame(TrafficOp.OUT, 1), id="no bytes"),
        pytest.param(frame(TrafficOp.OUT, 9, b"x"), id="a stream that was never opened"),
        pytest.param(frame(TrafficOp.EOF, 1) + frame(TrafficOp.EOF, 1), id="two ends"),
        pytest.param(frame(TrafficOp.EOF, 1) + frame(TrafficOp.OUT, 1, b"x"), id="bytes after their end"),
        pytest.param(frame(TrafficOp.CREDIT, 1, encode_credit(1)), id="credit that was not used"),
        pytest.param(frame(TrafficOp.CREDIT, 1, b"x"), id="no credit"),
        pytest.param(frame(TrafficOp.CANCEL, 1), id="what only a gateway sends"),
        pytest.param(frame(TrafficOp.OPEN, 2, b"{}"), id="a node opens nothing"),
        pytest.param(frame(TrafficOp.END, 1, b'{"code": "made up"}'), id="an unknown end"),
        pytest.param(encode_raw_frame(77, 1, b""), id="an unknown operation"),
        pytest.param(b"\x03\x00", id="half a frame"),
    ],
)
async def test_a_node_that_breaks_the_rules_loses_its_socket(pair: Pair, message: bytes) -> None:
    near, _ = await pair.open()
    with pytest.raises(ProtocolViolation):
        pair.gateway.receive(message)
    pair.gateway_socket.peer.send(message)
    await until(lambda: near.end is not None)
    assert isinstance(pair.gateway.lost.result(), ProtocolViolation)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(frame(TrafficOp.OPEN, 1, msgspec.json.encode(WANTED)), id="a number twice"),
        pytest.param(frame(TrafficOp.OPEN, 2, b'{"kind": "disk"}'), id="an unknown kind"),
        pytest.param(frame(TrafficOp.OPEN, 2, b"\xff"), id="no text"),
        pytest.param(frame(TrafficOp.RESIZE, 1, b'{"columns": 0, "rows": 5}'), id="a terminal without columns"),
        pytest.param(frame(TrafficOp.END, 1, b"{}"), id="what only a node sends"),
        pytest.param(frame(TrafficOp.ERR, 1, b"x"), id="input has no stderr"),
    ],
)
async def test_a_gateway_that_breaks_the_rules_is_found_out(pair: Pair, message: bytes) -> None:
    await pair.open()
    with pytest.raises(ProtocolViolation):
        pair.node.receive(message)
