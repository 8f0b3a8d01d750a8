"""A WebSocket client with callbacks only, for a thousand links in one process at the least cost per message.

It implements only what a link needs: unfragmented binary messages and answers to pings. Its masking key is zero, which
saves the masking here and changes nothing for the gateway.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import cast
from urllib.parse import urlsplit

from sparewatt.core.errors import LinkLost, ProtocolViolation
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX

_KEY = "c3BhcmV3YXR0LWJlbmNoLg=="
_ZERO_MASK = b"\0\0\0\0"
_MEDIUM, _LONG = struct.Struct(">BBH"), struct.Struct(">BBQ")
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_FINAL = _MASKED = 0x80
HEAD_BYTES_MAX = 8192


def frame_of(opcode: int, payload: bytes) -> bytes:
    size, first = len(payload), _FINAL | opcode
    if size < 126:
        head = bytes((first, _MASKED | size))
    elif size < 1 << 16:
        head = _MEDIUM.pack(first, _MASKED | 126, size)
    else:
        head = _LONG.pack(first, _MASKED | 127, size)
    return head + _ZERO_MASK + payload


class CompletedSend:
    """An awaitable that is already done."""

    def __await__(self) -> Iterator[None]:
        return iter(())


class Wire(asyncio.Protocol):
    """A Socket as far as the handshake needs it; afterwards `on_message` is called for every message."""

    def __init__(self, *, host: str, path: str) -> None:
        self._hello = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._is_open = False
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.on_message: Callable[[bytes], None] = self._messages.put_nowait
        self.on_lost: Callable[[], None] = lambda: None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transport implements it, without being a subclass
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._is_open and not self._take_head():
            return
        self._take_frames()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._messages.put_nowait(None)
        self.on_lost()

    def _take_head(self) -> bool:
        head, ended, rest = self._buffer.partition(b"\r\n\r\n")
        if not ended and len(head) <= HEAD_BYTES_MAX:
            return False
        if not head.startswith(b"HTTP/1.1 101"):
            raise ProtocolViolation(f"the gateway refused the link: {head[:60]!r}")
        self._is_open, self._buffer = True, rest
        return True

    def _take_frames(self) -> None:
        buffer, at, size = self._buffer, 0, len(self._buffer)
        while size - at >= 2:
            first, length, begin = buffer[at], buffer[at + 1], at + 2
            if length >= 126:
                begin += 2 if length == 126 else 8
                if size < begin:
                    break
                length = int.from_bytes(buffer[at + 2 : begin], "big")
            if length > LINK_MESSAGE_BYTES_MAX:
                raise ProtocolViolation("a message is over the limit")
            if size < begin + length:
                break
            at = begin + length
            self._act(first, buffer[begin:at])
        self._buffer = buffer[at:]

    def _act(self, first: int, payload: bytes) -> None:
        if first == _FINAL | _BINARY:
            self.on_message(payload)
        elif first == _FINAL | _PING:
            self._write(frame_of(_PONG, payload))
        elif first == _FINAL | _CLOSE:
            self._drop()
        else:
            raise ProtocolViolation("a gateway sends whole binary messages")

    # sending

    def send_now(self, message: bytes) -> None:
        self._write(frame_of(_BINARY, message))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # as a Socket of the handshake

    def send(self, message: bytes) -> CompletedSend:
        self.send_now(message)
        return CompletedSend()

    async def receive(self) -> bytes:
        message = await self._messages.get()
        if message is None:
            raise LinkLost("the gateway closed the socket")
        return message


async def dial(url: str, path: str) -> Wire:
    parts = urlsplit(url)
    wire = Wire(host=parts.netloc, path=path)
    await asyncio.get_running_loop().create_connection(lambda: wire, parts.hostname or "", parts.port or 80)
    return wire
