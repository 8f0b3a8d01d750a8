"""A peer that writes WebSocket frames by hand, so that it can also write what no library would."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp

from sparewatt.link.dialer import dial
from sparewatt.link.sockets import Socket
from sparewatt.link.websocket_library import WebSocketLibrary
from tests.contract.link.servers import Server
from tests.waiting import CEILING_S, turns

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_MASK = b"\x01\x02\x03\x04"
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = base64.b64encode(bytes(16))


class RawFrame(NamedTuple):
    op: int
    payload: bytes


class RawPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, masks: bool) -> None:
        self.reader = reader
        self.writer = writer
        self._masks = masks

    def frame(self, op: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0) -> bytes:
        masked, size = 0x80 * self._masks, len(payload)
        start = bytes([(0x80 * fin) | (rsv << 4) | op])
        if size < 126:
            start += bytes([masked | size])
        elif size < 1 << 16:
            start += bytes([masked | 126]) + struct.pack(">H", size)
        else:
            start += bytes([masked | 127]) + struct.pack(">Q", size)
        return start + (_MASK + masked_with(payload) if self._masks else payload)

    def send(self, op: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0) -> None:
        self.writer.write(self.frame(op, payload, fin=fin, rsv=rsv))

    async def read(self) -> RawFrame:
        """The next frame of the other end."""
        async with asyncio.timeout(CEILING_S):
            first, second = await self.reader.readexactly(2)
            assert bool(second & 0x80) is not self._masks, "only a client masks"
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
            mask = await self.reader.readexactly(4) if second & 0x80 else bytes(4)
            return RawFrame(first & 0xF, masked_with(await self.reader.readexactly(size), mask))

    async def read_until(self, op: int) -> RawFrame:
        while (frame := await self.read()).op != op:
            pass
        return frame

    async def closed_with(self) -> int:
        """The code of its CLOSE."""
        (code,) = struct.unpack(">H", (await self.read_until(CLOSE)).payload[:2])
        return int(code)

    async def at_end(self) -> None:
        """Until the other end has closed the connection too."""
        async with asyncio.timeout(CEILING_S):
            try:
                await self.reader.read()
            except ConnectionError:
                return


def masked_with(payload: bytes, mask: bytes = _MASK) -> bytes:
    size = len(payload)
    stream = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ stream).to_bytes(size, "big")


@asynccontextmanager
async def raw_node(server: Server) -> AsyncIterator[tuple[Socket, RawPeer]]:
    """The gateway's end of a connection, and the raw peer that dialled it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"GET /link HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + _KEY + b"\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    found = await server.next()
    try:
        yield found, RawPeer(reader, writer, masks=True)
    finally:
        found.abort()
        writer.transport.abort()
        await turns()


@asynccontextmanager
async def raw_gateway(library: WebSocketLibrary) -> AsyncIterator[tuple[Socket, RawPeer]]:
    """The node's end of a connection, and the raw peer that accepted it."""
    peers: asyncio.Queue[RawPeer] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (key,) = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")]
        answer = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + answer + b"\r\n\r\n"
        )
        peers.put_nowait(RawPeer(reader, writer, masks=False))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session:
        found = await dial(f"http://127.0.0.1:{port}/link", session=session, library=library)
        peer = await peers.get()
        try:
            yield found, peer
        finally:
            found.abort()
            await found.wait_closed()
            peer.writer.transport.abort()
            listening.close()
            await turns()
