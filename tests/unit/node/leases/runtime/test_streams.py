from __future__ import annotations

import asyncio
import struct

import pytest

from sparewatt.node.leases.runtime.runtime import Output
from sparewatt.node.leases.runtime.streams import (
    CHUNK_BYTES,
    FRAME_BYTES_MAX,
    LogPosition,
    stream_frames,
    unix_text,
)


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


async def read(data: bytes) -> list[Output]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return [output async for output in stream_frames(reader)]


async def test_frames_are_told_apart_by_stream() -> None:
    data = frame(1, b"out\n") + frame(2, b"err\n") + frame(1, b"") + frame(1, b"more")
    assert await read(data) == [("stdout", b"out\n"), ("stderr", b"err\n"), ("stdout", b"more")]


async def test_a_large_frame_comes_in_pieces() -> None:
    pieces = await read(frame(1, b"x" * (2 * CHUNK_BYTES + 1)))
    assert [len(data) for _, data in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 1]


async def test_a_stream_that_breaks_off_ends_with_what_was_whole() -> None:
    assert await read(frame(1, b"whole") + frame(1, b"broken")[:-2]) == [("stdout", b"whole")]
    assert await read(b"\x01\x00") == []


async def test_a_frame_that_is_no_frame_ends_the_stream() -> None:
    assert await read(struct.pack(">BxxxL", 1, FRAME_BYTES_MAX + 1) + b"x") == []


STAMP = "2026-11-18T00:57:38.351735503Z"


def line(text: str, stamp: str = STAMP, stream: int = 1) -> bytes:
    return frame(stream, f"{stamp} {text}\n".encode())


async def read_on(position: LogPosition, *lines: bytes) -> list[str]:
    reader = asyncio.StreamReader()
    reader.feed_data(b"".join(lines))
    reader.feed_eof()
    return b"".join([data async for _, data in position.read(reader)]).decode().splitlines()


async def test_the_time_before_a_line_is_taken_off_also_of_a_line_in_pieces() -> None:
    long = "x y" * CHUNK_BYTES
    assert await read_on(LogPosition(0), line("oh no", stream=2), line(long)) == ["oh no", long]


async def test_a_log_is_read_on_without_the_lines_of_the_last_moment() -> None:
    position = LogPosition(7.0)
    assert position.since == "7.000000"
    assert await read_on(position) == []
    earlier, later = "2026-11-18T00:57:38Z", "2026-11-18T00:57:39Z"
    assert await read_on(position, line("a", earlier), line("b", later), line("c", later)) == ["a", "b", "c"]
    assert position.since == "1794963459.000000000"
    again = [line("b", later), line("c", later), line("d", later)]
    assert await read_on(position, *again) == ["d"]
    assert await read_on(position, *again, line("e", "2026-11-18T00:57:40Z"), line("f", later)) == ["e", "f"]


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("1970-01-01T00:00:01.5Z", "1.500000000"),
        ("1970-01-01T00:00:01.999999999Z", "1.999999999"),
        ("1970-01-01T01:00:01+01:00", "1.000000000"),
        ("soon", ""),
    ],
)
def test_a_time_keeps_all_its_digits(stamp: str, text: str) -> None:
    assert unix_text(stamp) == text
