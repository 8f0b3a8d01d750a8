"""The node's end alone, against frames that a gateway might send."""

from __future__ import annotations

import asyncio

import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.link.sockets import LINK_BATCH_BYTES
from sparewatt.protocol.link.frames import (
    Credit,
    Goodbye,
    JobEnd,
    JobFailure,
    JobReplyHead,
    Opcode,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.link.ends import job_of, lone_node
from tests.unit.protocol.reports import SPECS
from tests.waiting import turns

END = JobEnd(load=NodeLoad())


def open_frames(stream: int, body: bytes = b"{}", *, window_bytes: int = 100) -> bytes:
    start = encode_message(Opcode.OPEN, job_of(body, window_bytes=window_bytes), stream=stream)
    return start + (encode_frame(Opcode.BODY, stream, body) if body else b"")


def credit(stream: int, n_bytes: int) -> bytes:
    return encode_message(Opcode.CREDIT, Credit(n_bytes=n_bytes), stream=stream)


# bodies


async def test_a_job_starts_when_its_body_is_complete_and_not_before() -> None:
    link, _, runner, _ = lone_node()
    link.receive(encode_message(Opcode.OPEN, job_of(b"abc"), stream=1) + encode_frame(Opcode.BODY, 1, b"ab"))
    assert runner.started == []
    link.receive(encode_frame(Opcode.BODY, 1, b"c"))
    assert [bytes(job.body) for job in runner.started] == [b"abc"]


async def test_a_job_without_a_body_starts_at_once() -> None:
    link, _, runner, _ = lone_node()
    link.receive(open_frames(1, b""))
    assert len(runner.started) == 1


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(encode_frame(Opcode.BODY, 1, b"x"), id="longer-than-announced"),
        pytest.param(encode_frame(Opcode.BODY, 1), id="empty-piece"),
        pytest.param(open_frames(1), id="stream-taken"),
        pytest.param(open_frames(0), id="stream-zero"),
        pytest.param(encode_frame(Opcode.CREDIT, 1, b'{"n_bytes":0}'), id="no-credit"),
        pytest.param(encode_frame(Opcode.OPEN, 2, b"{}"), id="malformed-open"),
        pytest.param(encode_message(Opcode.LOAD, NodeLoad()), id="a-nodes-frame"),
        pytest.param(encode_frame(Opcode.PONG, 0), id="pong-from-a-gateway"),
        pytest.param(encode_frame(Opcode.DATA, 1, b"x"), id="data-from-a-gateway"),
        pytest.param(encode_frame(Opcode.GOODBYE, 0, b"bye"), id="malformed-goodbye"),
        pytest.param(b"\x10", id="no-frame"),
    ],
)
async def test_a_gateway_that_breaks_the_protocol_ends_the_link(message: bytes) -> None:
    link, _, runner, _ = lone_node()
    link.receive(open_frames(1))
    with pytest.raises(ProtocolViolation):
        link.receive(message)
    assert len(runner.started) == 1


async def test_a_gateway_that_opens_too_many_jobs_ends_the_link() -> None:
    link, _, runner, _ = lone_node()
    for stream in range(1, LINK_JOBS_MAX + 1):
        link.receive(open_frames(stream))
    with pytest.raises(ProtocolViolation, match="too many"):
        link.receive(open_frames(LINK_JOBS_MAX + 1))
    runner.started[0].end(END)
    link.receive(open_frames(LINK_JOBS_MAX + 2))


# replies


async def test_every_chunk_is_passed_on_as_it_comes_and_in_order() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(7))
    (job,) = runner.started
    job.send_head(JobReplyHead(status=200))
    for chunk in (b"one", b"two", b"three"):
        await job.send_data(chunk)
        assert wire.frames()[-1].payload == chunk
    job.end(END)
    assert wire.ops() == [Opcode.END]


async def test_a_long_chunk_is_cut_into_frames() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1, window_bytes=1 << 20))
    data = bytes(range(256)) * (LINK_BATCH_BYTES // 256) + b"rest"
    await runner.started[0].send_data(data)
    frames = wire.frames()
    assert [len(frame.payload) for frame in frames] == [LINK_BATCH_BYTES, 4]
    assert b"".join(frame.payload for frame in frames) == data


async def test_a_job_stops_at_its_window_and_goes_on_with_credit() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1, window_bytes=10))
    sending = asyncio.create_task(runner.started[0].send_data(b"0123456789abcdefghij"))
    await turns()
    assert b"".join(frame.payload for frame in wire.frames()) == b"0123456789"
    assert not sending.done()
    link.receive(credit(1, 4))
    await turns()
    assert b"".join(frame.payload for frame in wire.frames()) == b"abcd"
    assert not sending.done()
    link.receive(credit(1, 100))
    await sending
    assert b"".join(frame.payload for frame in wire.frames()) == b"efghij"


async def test_a_job_that_waits_for_credit_does_not_block_another() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1, window_bytes=1) + open_frames(2, window_bytes=100))
    stuck = asyncio.create_task(runner.started[0].send_data(b"xy"))
    await turns()
    await runner.started[1].send_data(b"free")
    assert [frame.payload for frame in wire.frames() if frame.stream == 2] == [b"free"]
    stuck.cancel()
    await asyncio.wait([stuck])


async def test_a_job_ends_once() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1))
    (job,) = runner.started
    job.end(END)
    job.end(END)
    job.fail(JobFailure(code="backend_broke", message="late"))
    assert wire.ops() == [Opcode.END]


async def test_a_job_that_is_over_cannot_end_another_with_its_number() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1) + encode_frame(Opcode.CANCEL, 1) + open_frames(1))
    old, new = runner.started
    old.end(END)
    assert wire.ops() == []
    new.end(END)
    assert wire.ops() == [Opcode.END]


async def test_frames_for_a_job_that_is_over_are_ignored() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1))
    runner.started[0].end(END)
    wire.frames()
    link.receive(credit(1, 5) + encode_frame(Opcode.CANCEL, 1) + encode_frame(Opcode.BODY, 1, b"x"))
    assert (runner.cancelled, wire.frames()) == ([], [])


# the link itself


async def test_a_cancel_reaches_the_runner_and_the_job_sends_nothing_more() -> None:
    link, wire, runner, _ = lone_node()
    link.receive(open_frames(1))
    link.receive(encode_frame(Opcode.CANCEL, 1))
    (job,) = runner.started
    assert runner.cancelled == [job]
    job.end(END)
    job.fail(JobFailure(code="backend_broke", message="late"))
    assert wire.frames() == []


async def test_a_lost_gateway_cancels_every_open_job_exactly_once() -> None:
    link, _, runner, _ = lone_node()
    link.receive(open_frames(1) + open_frames(2) + open_frames(3))
    runner.started[1].end(END)
    link.on_lost()
    link.on_lost()
    assert runner.cancelled == [runner.started[0], runner.started[2]]


async def test_a_ping_is_answered_with_its_own_stamp() -> None:
    link, wire, _, _ = lone_node()
    link.receive(encode_frame(Opcode.PING, 0, b"12345678"))
    assert [(frame.op, frame.payload) for frame in wire.frames()] == [(Opcode.PONG, b"12345678")]


async def test_every_message_counts_as_a_sign_of_life() -> None:
    link, _, _, clock = lone_node()
    clock.advance(5.0)
    assert link.last_heard_s == clock.now_s() - 5.0
    link.receive(b"")
    assert link.last_heard_s == clock.now_s()


async def test_a_gateways_goodbye_reason_is_remembered_and_a_nodes_own_goodbye_is_its_last_frame() -> None:
    link, wire, _, _ = lone_node()
    link.receive(encode_message(Opcode.GOODBYE, Goodbye(reason="the gateway is stopping")))
    assert link.goodbye_reason == "the gateway is stopping"
    link.say_goodbye("the node is stopping")
    link.send_load(NodeLoad())
    (frame,) = wire.frames()
    assert decode_message(frame.payload, Goodbye).reason == "the node is stopping"


async def test_reports_are_sent_as_they_are() -> None:
    link, wire, _, _ = lone_node()
    link.send_specs(SPECS)
    link.send_load(NodeLoad(running=1))
    assert wire.ops() == [Opcode.SPECS, Opcode.LOAD]
