"""`adopt`: a connection whose head the HTTP front end has read becomes a WebSocket, whatever follows that head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparewatt.core.fair_queue import FairQueue
from sparewatt.link.picows_sockets import adopt
from sparewatt.link.sockets import LINK_BATCH_BYTES, Socket
from tests.contract.link.listeners import RecordingListener
from tests.contract.link.raw_peer import BINARY, RawPeer
from tests.contract.link.servers import Server, picows_server
from tests.waiting import CEILING_S, until

HEAD = (
    b"GET /link/v1 HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n"
)


async def dialled(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def test_what_follows_the_head_in_the_same_read_is_received() -> None:
    async with picows_server() as server:
        reader, writer = await dialled(server)
        peer = RawPeer(reader, writer, masks=True)
        writer.write(HEAD % b"" + peer.frame(BINARY, b"at once") + peer.frame(BINARY, bytes(30_000)))
        socket = await server.next()
        listener = RecordingListener(socket)
        await until(lambda: len(listener.received) == 2)
        assert listener.received == [b"at once", bytes(30_000)]
        writer.close()


async def test_a_long_head_is_taken() -> None:
    async with picows_server() as server:
        _, writer = await dialled(server)
        writer.write(HEAD % (b"X-Proxy: " + b"x" * 9_000 + b"\r\n"))
        await server.next()
        writer.close()


async def test_what_is_sent_when_it_opens_comes_after_the_answer() -> None:
    async with picows_server() as server:
        server.give_to = lambda transport, head: adopt(transport, head, lambda socket: socket.send(b"first words"))
        reader, writer = await dialled(server)
        writer.write(HEAD % b"")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await RawPeer(reader, writer, masks=True).read() == (BINARY, b"first words")
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /link/v1 HTTP/1.1\r\nHost: gateway\r\n\r\n", id="no-upgrade"),
        pytest.param((HEAD % b"").replace(b"13", b"12"), id="other-version"),
        pytest.param((HEAD % b"").replace(b"AAAA==", b""), id="half-a-key"),
        pytest.param((HEAD % b"").replace(b"GET", b"POST"), id="no-get"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", id="no-http"),
    ],
)
async def test_a_head_that_asks_for_no_websocket_gets_400_and_the_end(head: bytes) -> None:
    async with picows_server() as server:
        reader, writer = await dialled(server)
        writer.write(head)
        async with asyncio.timeout(CEILING_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        assert server.arrived.empty()
        writer.close()


async def test_a_link_that_sends_much_at_once_is_read_a_little_in_each_tick() -> None:
    """However much its socket buffers; sockets of one read queue alternate."""
    ticks: list[Callable[[], None]] = []
    queue = FairQueue(ticks.append, at_once=1)

    def run_tick() -> None:
        due = ticks[:]
        ticks.clear()
        for each in due:
            each()

    async with picows_server() as server:
        opened: list[Socket] = []
        server.give_to = lambda transport, head: adopt(transport, head, opened.append, read_queue=queue)
        peers = [RawPeer(*await dialled(server), masks=True) for _ in range(2)]
        for peer in peers:
            peer.writer.write(HEAD % b"")
        await until(lambda: len(opened) == 2)
        listeners = [RecordingListener(socket) for socket in opened]
        for peer in peers:
            peer.writer.write(peer.frame(BINARY, bytes(1000)) * 200)
        await until(lambda: len(queue._waiting) == 2)
        before = [len(listener.received) for listener in listeners]
        run_tick()
        await until(lambda: len(queue._waiting) == 2)
        first, second = (len(listener.received) - had for listener, had in zip(listeners, before, strict=True))
        assert 0 < max(first, second) * 1000 <= 2 * LINK_BATCH_BYTES
        assert min(first, second) == 0
        while sum(len(listener.received) for listener in listeners) < 400:
            await until(lambda: bool(ticks) or sum(len(listener.received) for listener in listeners) == 400)
            run_tick()
        for peer in peers:
            peer.writer.close()
