"""The gateway's end alone, against frames that a node might send."""

from __future__ import annotations

import struct

import pytest

from sparewatt.core.errors import LinkFlooded, ProtocolViolation
from sparewatt.core.limits import (
    LINK_FRAME_BYTES_MAX,
    LINK_JOBS_MAX,
    LOAD_REPORT_INTERVAL_S,
    REQUEST_BODY_BYTES_MAX,
)
from sparewatt.link.gateway_end import JobStream, NodeLink
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
from tests.unit.link.ends import Listener, grant, job_of, lone_gateway
from tests.unit.protocol.reports import SPECS

HEAD = JobReplyHead(status=200)
END = JobEnd(load=NodeLoad(running=1))


def opened(link: NodeLink, body: bytes = b"{}", *, window_bytes: int = 100) -> tuple[JobStream, Listener]:
    listener = Listener()
    return link.open(job_of(body, window_bytes=window_bytes), body, listener), listener


def head(stream: int) -> bytes:
    return encode_message(Opcode.HEAD, HEAD, stream=stream)


def data(stream: int, payload: bytes) -> bytes:
    return encode_frame(Opcode.DATA, stream, payload)


def end(stream: int) -> bytes:
    return encode_message(Opcode.END, END, stream=stream)


# opening


@pytest.mark.parametrize(
    "n_bytes", [0, 1, LINK_FRAME_BYTES_MAX - 1, LINK_FRAME_BYTES_MAX, LINK_FRAME_BYTES_MAX + 1, REQUEST_BODY_BYTES_MAX]
)
def test_a_body_of_any_length_follows_in_frames(n_bytes: int) -> None:
    link, wire, _, _ = lone_gateway()
    body = bytes(n_bytes)
    opened(link, body)
    first, *rest = wire.frames()
    assert first.op is Opcode.OPEN
    assert {frame.op for frame in rest} <= {Opcode.BODY}
    assert all(frame.payload for frame in rest)
    assert b"".join(frame.payload for frame in rest) == body


def test_every_job_has_its_own_stream_number() -> None:
    link, _, _, _ = lone_gateway()
    first, _ = opened(link)
    first.cancel()
    second, _ = opened(link)
    assert (first.number, second.number) == (1, 2)


def test_a_link_with_as_many_jobs_as_a_node_takes_refuses_the_next() -> None:
    link, wire, _, _ = lone_gateway()
    streams = [opened(link)[0] for _ in range(LINK_JOBS_MAX)]
    wire.frames()
    refused, listener = opened(link)
    assert [fail.code for fail in listener.fails] == ["refused"]
    assert wire.frames() == []
    refused.cancel()
    grant(refused, 5)
    assert wire.frames() == []
    streams[0].cancel()
    assert not opened(link)[1].fails


def test_a_link_that_already_queues_large_bodies_refuses_the_next_instead_of_breaking() -> None:
    link, _, _, _ = lone_gateway()
    body = bytes(REQUEST_BODY_BYTES_MAX)
    fails = [opened(link, body)[1].fails for _ in range(4)]
    assert [len(fail) for fail in fails] == [0, 0, 0, 1]


# what comes back


def test_a_reply_reaches_its_listener_before_receive_returns() -> None:
    link, _, observer, _ = lone_gateway()
    stream, listener = opened(link)
    link.receive(head(1))
    assert listener.heads == [HEAD]
    link.receive(data(1, b"a"))
    link.receive(data(1, b"b"))
    assert listener.pieces == [b"a", b"b"]
    link.receive(end(1))
    assert listener.ends == [END]
    assert observer.loads == [END.load]
    assert not link.has(stream)


def test_adjacent_data_frames_of_one_job_are_joined_and_jobs_are_not_mixed() -> None:
    link, _, _, _ = lone_gateway()
    listeners = [opened(link)[1] for _ in range(2)]
    link.receive(head(1) + head(2) + data(1, b"a") + data(1, b"b") + data(2, b"x") + data(1, b"c") + data(1, b"d"))
    link.receive(data(2, b"y") + data(2, b"z") + end(2) + data(1, b"e"))
    assert [listener.pieces for listener in listeners] == [[b"ab", b"cd", b"e"], [b"x", b"yz"]]
    assert len(listeners[1].ends) == 1


def test_a_short_job_is_one_message_and_a_long_one_is_sent_frame_by_frame() -> None:
    link, wire, _, _ = lone_gateway()
    for body in (b"", b"short", bytes(300_000)):
        link.open(job_of(body), body, Listener())
        frames = wire.frames()
        assert [frame.op for frame in frames[1:]] == [Opcode.BODY] * (len(frames) - 1)
        assert (frames[0].op, b"".join(frame.payload for frame in frames[1:])) == (Opcode.OPEN, body)


def test_frames_of_one_job_do_not_reach_the_listener_of_another() -> None:
    link, _, _, _ = lone_gateway()
    listeners = [opened(link)[1] for _ in range(3)]
    link.receive(head(3) + head(1) + data(3, b"three") + data(1, b"one") + end(3))
    assert [listener.data for listener in listeners] == [b"one", b"", b"three"]
    assert [listener.over for listener in listeners] == [False, False, True]


def test_a_failure_reports_the_nodes_load() -> None:
    link, _, observer, _ = lone_gateway()
    _, listener = opened(link)
    fail = JobFailure(code="refused", message="full", load=NodeLoad(running=4))
    link.receive(encode_message(Opcode.FAIL, fail, stream=1))
    assert listener.fails == [fail]
    assert observer.loads == [NodeLoad(running=4)]


def test_after_the_end_of_a_job_its_frames_are_ignored() -> None:
    link, _, _, _ = lone_gateway()
    _, listener = opened(link)
    link.receive(head(1) + end(1) + data(1, b"late") + end(1))
    assert (listener.pieces, len(listener.ends)) == ([], 1)


def test_a_cancel_is_sent_once_and_later_frames_of_the_job_are_ignored() -> None:
    link, wire, _, _ = lone_gateway()
    stream, listener = opened(link)
    wire.frames()
    stream.cancel()
    stream.cancel()
    assert wire.ops() == [Opcode.CANCEL]
    link.receive(head(1) + data(1, b"late") + end(1))
    assert (listener.heads, listener.pieces, listener.over) == ([], [], False)


def test_after_the_end_of_a_job_nothing_is_sent_for_it() -> None:
    link, wire, _, _ = lone_gateway()
    stream, _ = opened(link)
    link.receive(head(1) + end(1))
    wire.frames()
    grant(stream, 10)
    stream.cancel()
    assert wire.frames() == []


# the window


def test_a_node_may_use_its_window_to_the_last_byte() -> None:
    link, _, _, _ = lone_gateway()
    _, listener = opened(link, window_bytes=10)
    link.receive(head(1) + data(1, bytes(10)) + data(1, b""))
    assert len(listener.data) == 10


def test_a_node_that_exceeds_its_window_ends_the_link() -> None:
    link, _, _, _ = lone_gateway()
    opened(link, window_bytes=10)
    with pytest.raises(ProtocolViolation, match="window"):
        link.receive(head(1) + data(1, bytes(11)))


def test_credit_widens_the_window_by_what_was_consumed() -> None:
    link, wire, _, _ = lone_gateway()
    stream, listener = opened(link, window_bytes=10)
    wire.frames()
    link.receive(head(1) + data(1, bytes(10)))
    grant(stream, 4)
    (frame,) = wire.frames()
    assert decode_message(frame.payload, Credit) == Credit(n_bytes=4)
    link.receive(data(1, bytes(4)))
    assert len(listener.data) == 14
    with pytest.raises(ProtocolViolation):
        link.receive(data(1, b"x"))


def test_credit_is_sent_once_a_quarter_of_the_window_was_consumed() -> None:
    link, wire, _, _ = lone_gateway()
    stream, _ = opened(link, window_bytes=100)
    wire.frames()
    link.receive(head(1) + data(1, bytes(60)))
    grant(stream, 20)
    grant(stream, 4)
    assert wire.frames() == []
    assert stream.window_left_bytes == 40
    grant(stream, 1)
    (frame,) = wire.frames()
    assert decode_message(frame.payload, Credit) == Credit(n_bytes=25)
    assert stream.window_left_bytes == 65


@pytest.mark.parametrize("n_bytes", [0, -5])
def test_no_credit_is_sent_when_nothing_was_consumed(n_bytes: int) -> None:
    link, wire, _, _ = lone_gateway()
    stream, _ = opened(link)
    wire.frames()
    grant(stream, n_bytes)
    assert wire.frames() == []


# violations


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(data(1, b"x"), id="data-before-head"),
        pytest.param(end(1), id="end-before-head"),
        pytest.param(head(1) + head(1), id="two-heads"),
        pytest.param(head(2), id="never-opened"),
        pytest.param(encode_frame(Opcode.CANCEL, (1 << 32) - 1), id="never-opened-at-all"),
        pytest.param(encode_frame(Opcode.CANCEL, 1), id="a-gateways-frame"),
        pytest.param(encode_message(Opcode.SPECS, SPECS, stream=1), id="specs-for-a-job"),
        pytest.param(data(0, b"x"), id="data-for-the-link"),
        pytest.param(encode_frame(Opcode.PING, 0), id="ping-from-a-node"),
        pytest.param(encode_frame(Opcode.HELLO, 0, b"{}"), id="hello-again"),
        pytest.param(encode_frame(Opcode.PONG, 0, b"1234567"), id="short-pong"),
        pytest.param(encode_frame(Opcode.LOAD, 0, b'{"running":-1}'), id="absurd-load"),
        pytest.param(encode_frame(Opcode.GOODBYE, 0, b"bye"), id="malformed-goodbye"),
        pytest.param(encode_frame(Opcode.HEAD, 1, b"{}"), id="malformed-head"),
        pytest.param(b"\x00", id="no-frame"),
    ],
)
def test_a_node_that_breaks_the_protocol_ends_the_link(message: bytes) -> None:
    link, _, _, _ = lone_gateway()
    opened(link)
    with pytest.raises(ProtocolViolation):
        link.receive(message)


# the link itself


def test_reports_reach_the_observer() -> None:
    link, _, observer, _ = lone_gateway()
    load = NodeLoad(running=2, draining=True)
    link.receive(encode_message(Opcode.SPECS, SPECS) + encode_message(Opcode.LOAD, load))
    link.receive(encode_message(Opcode.GOODBYE, Goodbye(reason="bye")))
    assert (observer.specs, observer.loads) == ([SPECS], [load])


def test_an_honest_stream_of_reports_is_taken_and_a_flood_ends_the_link() -> None:
    link, _, observer, clock = lone_gateway()
    report = encode_message(Opcode.LOAD, NodeLoad(running=1))
    for _ in range(1_000):
        clock.advance(LOAD_REPORT_INTERVAL_S)
        link.receive(report)
    assert len(observer.loads) == 1_000
    with pytest.raises(LinkFlooded):
        link.receive(report * 1_000)
    assert len(observer.loads) < 1_500


@pytest.mark.parametrize("report", [encode_message(Opcode.SPECS, SPECS), encode_frame(Opcode.PONG, 0, bytes(8))])
def test_specs_and_pongs_are_metered_too(report: bytes) -> None:
    link, _, _, _ = lone_gateway()
    with pytest.raises(LinkFlooded):
        link.receive(report * 500)


def test_a_pong_reports_the_round_trip_time() -> None:
    link, wire, observer, clock = lone_gateway()
    link.ping()
    (ping,) = wire.frames()
    clock.advance(0.25)
    link.receive(encode_frame(Opcode.PONG, 0, ping.payload))
    assert observer.rtts_s == [0.25]


@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 2000.0, 0.0])
def test_a_pong_with_an_invented_stamp_reports_no_round_trip_time(stamp: float) -> None:
    link, _, observer, _ = lone_gateway()
    link.receive(encode_frame(Opcode.PONG, 0, struct.pack(">d", stamp)))
    assert observer.rtts_s == []


def test_a_lost_link_fails_every_open_job_exactly_once() -> None:
    link, _, _, _ = lone_gateway()
    listeners = [opened(link)[1] for _ in range(3)]
    link.receive(head(2) + end(2))
    link.on_lost("the socket closed")
    link.on_lost("again")
    assert [len(listener.fails) for listener in listeners] == [1, 0, 1]
    assert listeners[0].fails[0] == JobFailure(code="link_lost", message="the socket closed")


def test_a_lost_link_ignores_further_messages() -> None:
    """A newer link of the same node may be there already: the old one must not report over it."""
    link, _, observer, _ = lone_gateway()
    _, listener = opened(link)
    link.on_lost("replaced")
    link.receive(encode_message(Opcode.SPECS, SPECS) + head(1) + end(1))
    assert (observer.specs, listener.heads, len(listener.fails)) == ([], [], 1)


def test_a_listener_that_cancels_other_jobs_while_the_link_is_lost_does_no_harm() -> None:
    link, wire, _, _ = lone_gateway()
    other, other_listener = opened(link)

    class Impatient(Listener):
        def on_fail(self, fail: JobFailure) -> None:
            super().on_fail(fail)
            other.cancel()

    impatient = Impatient()
    link.open(job_of(b"{}"), b"{}", impatient)
    wire.frames()
    link.on_lost("gone")
    assert (len(impatient.fails), len(other_listener.fails)) == (1, 1)
    assert wire.frames() == []
