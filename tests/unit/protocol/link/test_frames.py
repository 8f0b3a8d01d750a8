from __future__ import annotations

import struct

import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_FRAME_BYTES_MAX
from sparewatt.protocol.link.frames import FRAME_HEADER_BYTES, LinkFrame, Opcode, decode_frames, encode_frame

FRAMES = [
    LinkFrame(Opcode.PING, 0, b"12345678"),
    LinkFrame(Opcode.DATA, 7, b"data: {}\n\n"),
    LinkFrame(Opcode.CANCEL, (1 << 32) - 1, b""),
]
MESSAGE = b"".join(encode_frame(*frame) for frame in FRAMES)


def header(op: int, *, length: int, stream: int = 0) -> bytes:
    return struct.pack(">BII", op, stream, length)


def test_frames_come_out_as_they_went_in() -> None:
    assert decode_frames(MESSAGE) == FRAMES


@pytest.mark.parametrize("op", list(Opcode))
def test_every_operation_has_a_code(op: Opcode) -> None:
    assert decode_frames(encode_frame(op, 1, b"x")) == [LinkFrame(op, 1, b"x")]


def test_a_message_without_frames_holds_none() -> None:
    assert decode_frames(b"") == []


def test_a_message_cut_anywhere_but_between_frames_is_refused() -> None:
    ends, at = set(), 0
    for frame in FRAMES:
        at += FRAME_HEADER_BYTES + len(frame.payload)
        ends.add(at)
    for cut in range(1, len(MESSAGE)):
        if cut in ends:
            assert decode_frames(MESSAGE[:cut]) == FRAMES[: len([end for end in ends if end <= cut])]
        else:
            with pytest.raises(ProtocolViolation):
                decode_frames(MESSAGE[:cut])


@pytest.mark.parametrize("op", sorted(set(range(256)) - set(Opcode)))
def test_an_unknown_operation_is_refused(op: int) -> None:
    with pytest.raises(ProtocolViolation, match="unknown"):
        decode_frames(header(op, length=0))


@pytest.mark.parametrize("n_bytes", [0, 1, LINK_FRAME_BYTES_MAX - 1, LINK_FRAME_BYTES_MAX])
def test_a_payload_up_to_the_limit_passes(n_bytes: int) -> None:
    assert decode_frames(encode_frame(Opcode.DATA, 1, bytes(n_bytes)))[0].payload == bytes(n_bytes)


def test_a_payload_over_the_limit_is_not_sent() -> None:
    with pytest.raises(ValueError, match="limit"):
        encode_frame(Opcode.DATA, 1, bytes(LINK_FRAME_BYTES_MAX + 1))


@pytest.mark.parametrize("length", [LINK_FRAME_BYTES_MAX + 1, (1 << 32) - 1])
def test_a_payload_over_the_limit_is_refused(length: int) -> None:
    with pytest.raises(ProtocolViolation, match="limit"):
        decode_frames(header(Opcode.DATA, length=length) + bytes(LINK_FRAME_BYTES_MAX + 1))
