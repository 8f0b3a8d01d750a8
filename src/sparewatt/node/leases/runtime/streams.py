"""The engine's byte streams: frames of a program's output, and the connection of a command with its three streams."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from aiodocker.exceptions import DockerError
from aiodocker.execs import Exec

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.engine import ENGINE_S, within
from sparewatt.node.leases.runtime.model import LeaseRuntimeError, OutputStream, StartRefused
from sparewatt.node.leases.runtime.runtime import Output, TerminalSize

MOMENT = re.compile(
    r"(?P<seconds>(?P<year>\d{4})-\d\d-\d\dT\d\d:\d\d:\d\d)(\.(?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:\d\d)"
)
"""As engines write times: with nanoseconds, some with a zone."""
_HEADER = struct.Struct(">BxxxL")
FRAME_BYTES_MAX = 16 * MIB
CHUNK_BYTES = 65_536
HEAD_BYTES_MAX = 16_384


class _Reader(Protocol):
    async def readexactly(self, n: int) -> bytes: ...

    async def read(self, n: int = -1) -> bytes: ...


async def stream_frames(reader: _Reader) -> AsyncIterator[Output]:
    """Until the stream ends. A large frame comes in pieces."""
    async for name, piece, _ in _pieces(reader):
        yield name, piece


class LogPosition:
    """How far a log was read, so that it can be read on from there with another request.

    By the time of the last line: a request from that time on gives the lines of that time again, and these are left
    out. podman's times are whole seconds, so there may be many.
    """

    def __init__(self, since_unix_s: float) -> None:
        self.since = f"{since_unix_s:.6f}"
        """For the engine: seconds since 1970."""
        self._stamp = ""
        self._n_at_stamp = 0
        self._n_to_skip = 0

    async def read(self, reader: _Reader) -> AsyncIterator[Output]:
        """What comes after it, of a log with a time before each line."""
        self._n_to_skip, is_skipped = self._n_at_stamp, False
        async for name, piece, is_first in _pieces(reader):
            data = piece
            if is_first:
                word, _, data = piece.partition(b" ")
                is_skipped = self._is_known(word.decode(errors="replace"))
            if not is_skipped:
                yield name, data

    def _is_known(self, stamp: str) -> bool:
        if stamp == self._stamp and self._n_to_skip:
            self._n_to_skip -= 1
            return True
        self._n_to_skip = 0
        self._n_at_stamp = self._n_at_stamp + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        self.since = unix_text(stamp) or self.since
        return False


def unix_text(stamp: str) -> str:
    """In seconds since 1970 with all its digits; empty if it is no time."""
    found = MOMENT.fullmatch(stamp)
    if found is None:
        return ""
    zone = "+00:00" if found["zone"] == "Z" else found["zone"]
    seconds = int(dt.datetime.fromisoformat(f"{found['seconds']}{zone}").timestamp())
    return f"{seconds}.{(found['fraction'] or '0').ljust(9, '0')[:9]}"


async def _pieces(reader: _Reader) -> AsyncIterator[tuple[OutputStream, bytes, bool]]:
    """With whether it is the first of its frame."""
    while True:
        try:
            number, left = _HEADER.unpack(await reader.readexactly(_HEADER.size))
            is_first = True
            while 0 < left <= FRAME_BYTES_MAX:
                piece = await reader.readexactly(min(left, CHUNK_BYTES))
                left -= len(piece)
                yield stream_name(number), piece, is_first
                is_first = False
            if left:
                return
        except asyncio.IncompleteReadError:
            return


def stream_name(number: int) -> OutputStream:
    return "stderr" if number == 2 else "stdout"


class EngineExec:
    """Implements ExecSession. The engine hands the connection over (HTTP 101), and what follows is the streams."""

    def __init__(
        self, command: Exec, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_tty: bool
    ) -> None:
        self._command = command
        self._reader = reader
        self._writer = writer
        self._is_tty = is_tty
        self._frames = stream_frames(reader)

    @classmethod
    async def open(cls, socket: Path, command: Exec, *, api_version: str, is_tty: bool) -> EngineExec:
        """Raises StartRefused."""
        body = json.dumps({"Detach": False, "Tty": is_tty}).encode()
        head = (
            f"POST /{api_version}/exec/{command.id}/start HTTP/1.1\r\nHost: localhost\r\nUpgrade: tcp\r\n"
            f"Connection: Upgrade\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with within(ENGINE_S):
            reader, writer = await asyncio.open_unix_connection(str(socket), limit=HEAD_BYTES_MAX)
            writer.write(head.encode() + body)
            try:
                answer = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                writer.close()
                raise StartRefused("the engine gave no streams for the command") from error
        if answer.split(None, 2)[1:2] not in ([b"101"], [b"200"]):
            reason = (await reader.read(300)).decode(errors="replace")
            writer.close()
            raise StartRefused(f"the engine did not start the command: {reason}")
        return cls(command, reader, writer, is_tty=is_tty)

    async def read(self) -> Output | None:
        try:
            if not self._is_tty:
                return await anext(self._frames, None)
            data = await self._reader.read(CHUNK_BYTES)
        except OSError:
            return None
        return ("stdout", data) if data else None

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise LeaseRuntimeError("the command has ended") from error

    async def write_eof(self) -> None:
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def resize(self, size: TerminalSize) -> None:
        columns, rows = size
        with suppress(DockerError):  # it has ended
            async with within(ENGINE_S):
                await self._command.resize(h=rows, w=columns)

    async def exit_code(self) -> int | None:
        async with within(ENGINE_S):
            found = await self._command.inspect()
        return None if found.get("Running") else found.get("ExitCode")

    async def close(self) -> None:
        self._writer.close()
