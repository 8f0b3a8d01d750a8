"""Whatever a peer sends, the link knows it or refuses it: no other error, and no state that breaks later."""

from __future__ import annotations

import struct
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_FRAME_BYTES_MAX
from sparewatt.protocol.link.frames import (
    Challenge,
    Credit,
    Goodbye,
    Hello,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    LinkFrame,
    LinkProof,
    Opcode,
    Reject,
    Welcome,
    decode_frames,
    decode_message,
    encode_frame,
)
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.signing import BadSignature, recover_address
from tests.trying import at_least
from tests.unit.link.ends import Listener, grant, job_of, lone_gateway, lone_node
from tests.unit.protocol.reports import SPECS

SHAPES = (
    Challenge,
    Credit,
    JobEnd,
    JobFailure,
    Goodbye,
    JobReplyHead,
    Hello,
    NodeLoad,
    NodeSpecs,
    JobRequest,
    LinkProof,
    Reject,
    Welcome,
)
N_JOBS = 3

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
sensible = st.sampled_from(
    [
        b"",
        b"{}",
        b'{"n_bytes":1}',
        b'{"status":200}',
        b'{"load":{}}',
        b'{"code":"refused","message":""}',
        b'{"reason":"bye"}',
        b"12345678",
        struct.pack(">d", float("nan")),
        msgspec.json.encode(SPECS),
        msgspec.json.encode(job_of(b"")),
        msgspec.json.encode(job_of(b"ab")),
    ]
)
payloads = sensible | st.binary(max_size=40) | json_values.map(msgspec.json.encode)
frames = st.builds(
    LinkFrame, op=st.sampled_from(list(Opcode)), stream=st.integers(min_value=0, max_value=N_JOBS + 1), payload=payloads
)
messages = st.lists(frames, max_size=8).map(lambda found: b"".join(encode_frame(*frame) for frame in found))


@given(st.lists(frames, max_size=20))
def test_frames_survive_the_wire(found: list[LinkFrame]) -> None:
    assert decode_frames(b"".join(encode_frame(*frame) for frame in found)) == found


@at_least(100)
@given(st.binary(max_size=200) | messages)
def test_any_bytes_are_frames_or_refused(message: bytes) -> None:
    with suppress(ProtocolViolation):
        found = decode_frames(message)
        assert b"".join(encode_frame(*frame) for frame in found) == message
        assert all(len(frame.payload) <= LINK_FRAME_BYTES_MAX for frame in found)


@pytest.mark.parametrize("shape", SHAPES)
@given(payload=payloads)
def test_any_payload_is_a_message_or_refused(shape: type[msgspec.Struct], payload: bytes) -> None:
    with suppress(ProtocolViolation):
        message = decode_message(payload, shape)
        assert decode_message(msgspec.json.encode(message), shape) == message


@at_least(100)
@given(st.lists(messages | st.binary(max_size=60), max_size=6))
def test_a_gateway_survives_any_node(received: list[bytes]) -> None:
    link, _, _, _ = lone_gateway()
    listeners = [Listener() for _ in range(N_JOBS)]
    for listener in listeners:
        link.open(job_of(b"{}", window_bytes=50), b"{}", listener)
    with suppress(ProtocolViolation):
        for message in received:
            link.receive(message)
    link.on_lost("the socket closed")
    assert all(len(listener.ends) + len(listener.fails) == 1 for listener in listeners)
    assert all(len(listener.data) <= 50 for listener in listeners)
    assert all(listener.heads or not listener.pieces for listener in listeners)


@at_least(100)
@given(st.lists(messages | st.binary(max_size=60), max_size=6))
def test_a_node_survives_any_gateway(received: list[bytes]) -> None:
    link, _, runner, _ = lone_node()
    with suppress(ProtocolViolation):
        for message in received:
            link.receive(message)
    link.on_lost()
    assert len(set(runner.started)) == len(runner.started), "a job was started twice"
    assert len(set(runner.cancelled)) == len(runner.cancelled), "a job was cancelled twice"
    assert set(runner.started) <= set(runner.cancelled)
    assert all(len(job.body) == job.meta.body_bytes for job in runner.started)


@given(
    window_bytes=st.integers(min_value=1, max_value=200),
    steps=st.lists(st.tuples(st.integers(1, 250), st.integers(1, 250)), max_size=40),
)
def test_a_node_that_waits_for_credit_waits_for_the_client(window_bytes: int, steps: list[tuple[int, int]]) -> None:
    """Credit comes in steps, yet a node never stands still over bytes that were all taken, nor exceeds its window."""
    link, wire, _, _ = lone_gateway()
    stream = link.open(job_of(b"", window_bytes=window_bytes), b"", Listener())
    link.receive(encode_frame(Opcode.HEAD, 1, b'{"status":200}'))
    sent = taken = told = 0
    for wanted, taking in steps:
        piece = min(wanted, window_bytes + told - sent)
        link.receive(encode_frame(Opcode.DATA, 1, bytes(piece)))
        sent += piece
        some = min(taking, sent - taken)
        taken += some
        grant(stream, some)
        told += sum(decode_message(each.payload, Credit).n_bytes for each in wire.frames() if each.op is Opcode.CREDIT)
        left = window_bytes + told - sent
        assert stream.window_left_bytes == left
        assert told <= taken
        assert taken - told < max(1, window_bytes / 4)
        assert left > 0 or sent - taken > window_bytes * 3 / 4 - 1
        assert left > 0 or taken < sent


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=70) | st.binary(min_size=65, max_size=65))
def test_any_bytes_are_a_signature_or_refused(digest: bytes, signature: bytes) -> None:
    with suppress(BadSignature):
        assert len(recover_address(digest, signature)) == 42
