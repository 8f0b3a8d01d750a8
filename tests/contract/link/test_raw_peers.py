"""Peers that do what no library would: every kind of socket survives them, and ends in the same way."""

from __future__ import annotations

import asyncio
import socket as sockets
import struct

import pytest

from sparewatt.core.errors import LinkLost, ProtocolViolation
from sparewatt.core.limits import KIB, LINK_MESSAGE_BYTES_MAX
from sparewatt.core.rng import seeded
from sparewatt.link import aiohttp_sockets, picows_sockets
from sparewatt.link.picows_sockets import PicowsSocket
from sparewatt.link.sockets import Socket
from tests.contract.link.listeners import RecordingListener
from tests.contract.link.raw_peer import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawPeer
from tests.waiting import CEILING_S, until

Against = tuple[Socket, RawPeer]
MOST = LINK_MESSAGE_BYTES_MAX - 1


# messages


async def test_a_message_in_pieces_arrives_whole_and_a_ping_between_them_is_answered(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.send(BINARY, b"one ", fin=False)
    peer.send(PING, b"?")
    peer.send(CONTINUATION, b"", fin=False)
    peer.send(CONTINUATION, b"two ", fin=False)
    peer.send(CONTINUATION, b"three")
    await until(lambda: listener.received)
    assert listener.received == [b"one two three"]
    assert await peer.read() == (PONG, b"?")
    peer.send(BINARY, b"next")
    await until(lambda: len(listener.received) == 2)


async def test_many_small_frames_in_one_read_are_all_received_in_order(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.writer.write(b"".join(peer.frame(BINARY, str(i).encode()) for i in range(5000)))
    await until(lambda: len(listener.received) == 5000)
    assert listener.received == [str(i).encode() for i in range(5000)]


async def test_frames_that_come_byte_by_byte_are_received(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    for byte in peer.frame(BINARY, b"slow") + peer.frame(BINARY, bytes(200)):
        peer.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    await until(lambda: len(listener.received) == 2)
    assert listener.received == [b"slow", bytes(200)]


async def test_the_longest_message_is_received_whole_or_in_pieces(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    message = seeded(1).randbytes(MOST)
    peer.send(BINARY, message)
    peer.send(BINARY, message[: MOST // 2], fin=False)
    peer.send(CONTINUATION, message[MOST // 2 :])
    await until(lambda: len(listener.received) == 2)
    assert listener.received == [message, message]


@pytest.mark.parametrize("pieces", [(MOST + 1,), (MOST - 10, 11), (10, MOST)])
async def test_a_message_that_reaches_the_limit_is_refused_and_ends_the_connection(
    against: Against, pieces: tuple[int, ...]
) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    for i, size in enumerate(pieces):
        peer.send(CONTINUATION if i else BINARY, bytes(size), fin=i == len(pieces) - 1)
    assert await peer.closed_with() == 1009
    await until(lambda: listener.ends)
    assert isinstance(listener.ends[0], ProtocolViolation)
    assert listener.received == []


# nonsense


async def test_text_is_no_message_of_the_link(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.send(TEXT, b"hello")
    assert await peer.closed_with() == 1003
    assert [str(end) for end in listener.ends] == ["the link carries binary messages only"]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([(3, b"", True, 0)], id="unknown-operation"),
        pytest.param([(11, b"", True, 0)], id="unknown-control"),
        pytest.param([(BINARY, b"x", True, 2)], id="reserved-bit"),
        pytest.param([(BINARY, b"x", True, 4)], id="compressed-though-nobody-asked"),
        pytest.param([(CONTINUATION, b"x", True, 0)], id="continues-nothing"),
        pytest.param([(BINARY, b"x", False, 0), (BINARY, b"y", True, 0)], id="a-message-inside-another"),
        pytest.param([(PING, bytes(126), True, 0)], id="long-ping"),
        pytest.param([(PING, b"", False, 0)], id="ping-in-pieces"),
        pytest.param([(CLOSE, b"\x03", True, 0)], id="half-a-close-code"),
        pytest.param([(CLOSE, struct.pack(">H", 999), True, 0)], id="close-code-that-is-none"),
    ],
)
async def test_a_peer_that_breaks_the_websocket_protocol_is_left(
    against: Against, frames: list[tuple[int, bytes, bool, int]]
) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    for op, payload, fin, rsv in frames:
        peer.send(op, payload, fin=fin, rsv=rsv)
    await until(lambda: listener.ends)
    assert isinstance(listener.ends[0], ProtocolViolation)
    assert listener.received == []
    await peer.read_until(CLOSE)


@pytest.mark.parametrize("seed", range(5))
async def test_garbage_ends_the_connection_and_nothing_else(against: Against, seed: int) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.writer.write(seeded(seed).randbytes(4 * KIB))
    peer.writer.write_eof()
    await until(lambda: listener.ends)
    assert len(listener.ends) == 1


# ends


@pytest.mark.parametrize("code", [1000, 1001, 1011, 4000])
async def test_a_close_is_answered_and_told(against: Against, code: int) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.send(BINARY, b"last words")
    peer.send(CLOSE, struct.pack(">H", code) + b"bye")
    await peer.read_until(CLOSE)
    await until(lambda: listener.ends)
    assert (listener.received, [type(end) for end in listener.ends]) == ([b"last words"], [LinkLost])
    peer.writer.close()
    async with asyncio.timeout(CEILING_S):
        await socket.wait_closed()


@pytest.mark.parametrize("cut_at", [1, 3, 1000])
async def test_a_peer_that_leaves_in_the_middle_of_a_message_is_lost(against: Against, cut_at: int) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.writer.write(peer.frame(BINARY, bytes(5000))[:cut_at])
    peer.writer.close()
    await until(lambda: listener.ends)
    assert (listener.received, [type(end) for end in listener.ends]) == ([], [LinkLost])


async def test_a_connection_that_is_reset_is_lost(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    raw = peer.writer.get_extra_info("socket")
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()
    await until(lambda: listener.ends)
    assert [type(end) for end in listener.ends] == [LinkLost]


async def test_an_own_close_is_said_with_its_code_and_waits_for_the_answer(against: Against) -> None:
    socket, peer = against
    RecordingListener(socket)
    socket.send(b"last words")
    socket.close()
    assert await peer.read() == (BINARY, b"last words")
    assert await peer.closed_with() == 1000
    peer.send(CLOSE, struct.pack(">H", 1000))
    peer.writer.write_eof()
    async with asyncio.timeout(CEILING_S):
        await socket.wait_closed()
    await peer.at_end()


async def test_a_peer_that_never_answers_a_close_is_cut(against: Against, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picows_sockets, "CLOSE_S", 0.05)
    monkeypatch.setattr(aiohttp_sockets, "CLOSE_S", 0.05)
    socket, peer = against
    RecordingListener(socket)
    socket.close()
    async with asyncio.timeout(CEILING_S):
        await socket.wait_closed()
    await peer.at_end()


# a peer that reads nothing


async def jam(socket: Socket, message: bytes) -> int:
    """Send until the socket says that it is enough, and stays so; how many messages that took."""
    sent = 0
    async with asyncio.timeout(CEILING_S):
        while True:
            while not socket.is_paused:
                socket.send(message)
                sent += 1
            await asyncio.sleep(0.05)
            if socket.is_paused:
                return sent


async def test_a_peer_that_does_not_read_pauses_the_sender_and_nothing_is_lost(against: Against) -> None:
    socket, peer = against
    listener = RecordingListener(socket)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
    message = seeded(3).randbytes(200 * KIB)
    sent = await jam(socket, message)
    peer.send(PING, b"are you there?")  # its answer must not get into the middle of what waits
    await asyncio.sleep(0.05)
    socket.send(b"the last")
    resumed = listener.resumed
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # likewise
    got: list[bytes] = []
    while not got or got[-1] != b"the last":
        frame = await peer.read()
        got += [frame.payload] if frame.op == BINARY else []
    assert got == [*[message] * sent, b"the last"]
    await until(lambda: listener.resumed > resumed and not socket.is_paused)


async def test_pings_of_a_peer_that_does_not_read_fill_no_memory(against: Against) -> None:
    socket, peer = against
    if not isinstance(socket, PicowsSocket):
        pytest.skip("aiohttp answers pings while it is asked for messages, one after the other")
    RecordingListener(socket)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
    await jam(socket, bytes(64 * KIB))
    assert socket._transport is not None
    below = socket._transport.underlying_transport
    waiting = below.get_write_buffer_size()
    received = len(socket._listener.received)  # type: ignore[union-attr]
    peer.writer.write(peer.frame(PING, bytes(100)) * 5000 + peer.frame(BINARY, b"done"))
    await until(lambda: len(socket._listener.received) > received)  # type: ignore[union-attr]
    assert below.get_write_buffer_size() <= waiting
