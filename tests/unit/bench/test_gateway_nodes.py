"""The stand-in nodes of `make bench-gateway`: to the gateway's own reader they must pass for real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from bench.gateway.answers import TOKENS, FakeRequest, read_request
from bench.gateway.fleet import MODEL, SHARED, SHARED_NODES, fleet
from bench.gateway.nodes import Node, TimerWheel
from bench.gateway.scenarios import SCENARIOS, body_of
from bench.gateway.websocket import Wire, frame_of

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.rng import seeded
from sparewatt.inference.dispatch.reply import StreamReply, WholeReply
from sparewatt.protocol.link.frames import JobRequest, LinkFrame, Opcode, decode_frames, encode_frame, encode_message
from sparewatt.protocol.link.node_report import validated
from sparewatt.protocol.link.receipts import SignedSheet
from sparewatt.protocol.signing import SigningKey

PACE_MS = 2
CEILING_S = 5.0


class FakeWire(Wire):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__(host="gateway", path="/")
        self.sent: list[bytes] = []
        self._news = asyncio.Event()

    def send_now(self, message: bytes) -> None:
        self.sent.append(message)
        self._news.set()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(CEILING_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def frames(self, stream: int, op: Opcode) -> list[LinkFrame]:
        return [
            frame
            for message in self.sent
            for frame in decode_frames(message)
            if (frame.stream, frame.op) == (stream, op)
        ]


KEY = SigningKey.generate(rng=seeded(1))


def linked() -> FakeWire:
    wire = FakeWire()
    Node(KEY, wire, timers=TimerWheel())
    return wire


def ask(wire: Wire, number: int, **request: object) -> None:
    body = msgspec.json.encode({"model": MODEL, "messages": [], **request})
    meta = JobRequest(
        "/v1/chat/completions", MODEL, len(body), stream=bool(request.get("stream")), window_bytes=1 << 18, job="job"
    )
    wire.on_message(encode_message(Opcode.OPEN, meta, stream=number) + encode_frame(Opcode.BODY, number, body))


async def until_ended(wire: FakeWire, *streams: int) -> None:
    await wire.until(lambda: all(wire.frames(stream, Opcode.END) for stream in streams))


async def test_a_whole_answer_is_one_message_that_the_gateway_takes() -> None:
    wire = linked()
    ask(wire, 1)
    await until_ended(wire, 1)
    reply = WholeReply()
    for frame in wire.frames(1, Opcode.DATA):
        reply.feed(frame.payload)
    reply.end()
    assert (len(wire.sent), reply.tokens) == (1, 16)


@pytest.mark.parametrize("pace_ms", [0, PACE_MS])
async def test_a_stream_has_all_its_tokens_and_its_usage(pace_ms: int) -> None:
    wire = linked()
    ask(wire, 1, stream=True, max_tokens=TOKENS + pace_ms, stream_options={"include_usage": True})
    await until_ended(wire, 1)
    reply = StreamReply(wants_usage=True)
    passed = b"".join(reply.feed(frame.payload).data for frame in wire.frames(1, Opcode.DATA))
    reply.end()
    assert (passed.count(b"@"), reply.tokens, reply.delivered.chunks) == (TOKENS, TOKENS, TOKENS)


async def test_the_tokens_of_one_step_leave_as_one_message() -> None:
    wire = linked()
    for stream in (1, 2, 3):
        ask(wire, stream, stream=True, max_tokens=TOKENS + PACE_MS)
    await until_ended(wire, 1, 2, 3)
    assert len(wire.sent) == TOKENS
    assert all(wire.frames(stream, Opcode.HEAD) for stream in (1, 2, 3))


async def test_a_cancelled_stream_says_nothing_more_and_the_others_go_on() -> None:
    wire = linked()
    for stream in (1, 2):
        ask(wire, stream, stream=True, max_tokens=TOKENS + PACE_MS)
    wire.on_message(encode_frame(Opcode.CANCEL, 1))
    await until_ended(wire, 2)
    assert len(wire.frames(1, Opcode.DATA)) == 1
    assert not wire.frames(1, Opcode.END)


async def test_receipts_come_on_a_sheet_that_the_node_signed() -> None:
    wire = linked()
    for stream in (1, 2):
        ask(wire, stream)
    await wire.until(lambda: wire.frames(0, Opcode.SHEET))
    sheet = msgspec.json.decode(wire.frames(0, Opcode.SHEET)[0].payload, type=SignedSheet)
    assert len(sheet.receipts) == 2
    assert sheet.is_signed_by(KEY.address, sheet.digests())


# the WebSocket


def received(data: bytes, *, piece: int) -> list[bytes]:
    """What a wire that was just let in makes of bytes that come in pieces."""
    wire, messages = Wire(host="gateway", path="/"), list[bytes]()
    wire.on_message = messages.append
    whole = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + data
    for at in range(0, len(whole), piece):
        wire.data_received(whole[at : at + piece])
    return messages


def unmasked(frame: bytes) -> bytes:
    """As a server would send it: without the mark and the key."""
    size = frame[1] & 0x7F
    head = 2 + {126: 2, 127: 8}.get(size, 0)
    return frame[:1] + bytes([size]) + frame[2:head] + frame[head + 4 :]


@pytest.mark.parametrize("piece", [61, 4_000, 1 << 20])
def test_messages_arrive_however_they_are_cut(piece: int) -> None:
    messages = [b"a" * 125, b"b" * 126, b"c" * 65_536, b""]
    assert received(b"".join(unmasked(frame_of(2, one)) for one in messages), piece=piece) == messages


def test_what_is_no_whole_binary_message_ends_the_link() -> None:
    with pytest.raises(ProtocolViolation):
        received(b"\x01\x01a", piece=100)


def test_a_refused_link_is_an_error() -> None:
    wire = Wire(host="gateway", path="/")
    with pytest.raises(ProtocolViolation, match="404"):
        wire.data_received(b"HTTP/1.1 404 Not Found\r\n\r\n")


# the fleet and the bodies


def test_the_fleet_is_unequal_eligible_and_within_the_protocols_bounds() -> None:
    specs = [validated(one) for one in fleet(100)]
    assert specs == fleet(100)
    assert len({one.gpu for one in specs}) > 5
    assert all(one.models[0].id == MODEL and one.models[0].measured is not None for one in specs)
    assert len({one.models[0].completion_price_nano for one in specs}) > 90


def test_a_few_large_nodes_have_the_shared_model_as_well() -> None:
    having = [one for one in fleet(100) if SHARED in [model.id for model in one.models]]
    assert len(having) == SHARED_NODES
    assert min(one.slots for one in having) >= max(one.slots for one in fleet(100) if one not in having)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: cast(str, scenario.name))
def test_a_body_asks_for_the_pace_of_its_workload(scenario: object) -> None:
    found = next(one for one in SCENARIOS if one is scenario)
    body = body_of(found)
    request: FakeRequest = read_request(body)
    assert len(body) == found.body_bytes
    assert body.count(b"########") == 1
    assert (request.stream, request.pace_ms) == (found.is_stream, found.pace_ms or 0)
