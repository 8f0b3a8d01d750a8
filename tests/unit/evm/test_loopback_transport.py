"""One kept connection to a node on this machine, and every way in which the node may answer badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.evm.json_rpc import REPLY_BYTES_MAX
from sparewatt.evm.loopback_transport import LoopbackTransport


class SmallNode:
    """Answers each request with the next prepared bytes; None closes the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                answer = self.answers.pop(0) if self.answers else b""
                if answer is None:
                    return
                writer.write(answer)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


def ok(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), extra) + body


@asynccontextmanager
async def opened(node: SmallNode, *, timeout_s: float = 5.0) -> AsyncIterator[LoopbackTransport]:
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = LoopbackTransport(f"http://127.0.0.1:{port}/rpc", timeout_s=timeout_s)
    try:
        yield transport
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()


async def test_requests_share_one_connection() -> None:
    node = SmallNode()
    node.answers = [ok(b"one"), ok(b""), ok(b"three")]
    async with opened(node) as transport:
        assert [await transport.post(body) for body in (b"a", b"bb", b"ccc")] == [b"one", b"", b"three"]
    assert (node.bodies, node.connections) == ([b"a", b"bb", b"ccc"], 1)


async def test_requests_at_once_get_their_own_answers() -> None:
    node = SmallNode()
    node.answers = [ok(b"%d" % number) for number in range(5)]
    async with opened(node) as transport:
        answers = await asyncio.gather(*(transport.post(b"%d" % number) for number in range(5)))
    assert [int(body) for body in answers] == [int(body) for body in node.bodies]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"x" * 100_000,
    ],
)
async def test_a_bad_answer_is_unavailable_and_the_next_request_dials_anew(answer: bytes | None) -> None:
    node = SmallNode()
    node.answers = [answer, ok(b"fine")]
    async with opened(node) as transport:
        with pytest.raises(ChainUnavailable):
            await transport.post(b"a")
        assert await transport.post(b"b") == b"fine"
    assert node.connections == 2


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    node = SmallNode()
    node.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (REPLY_BYTES_MAX + 1)]
    async with opened(node) as transport:
        with pytest.raises(ChainRefused):
            await transport.post(b"a")


async def test_a_node_that_closes_is_dialled_again() -> None:
    node = SmallNode()
    node.answers = [ok(b"one", b"Connection: close\r\n"), ok(b"two")]
    async with opened(node) as transport:
        assert [await transport.post(b"a"), await transport.post(b"b")] == [b"one", b"two"]
    assert node.connections == 2


async def test_silence_ends_at_the_time_limit() -> None:
    async with opened(SmallNode(), timeout_s=0.05) as transport:
        with pytest.raises(ChainUnavailable, match="TimeoutError"):
            await transport.post(b"a")


async def test_a_cancelled_request_leaves_no_answer_behind() -> None:
    """Its late reply must not be taken for the answer of the next."""
    node = SmallNode()
    async with opened(node) as transport:
        asked = asyncio.create_task(transport.post(b"a"))
        await _until(lambda: bool(node.bodies))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        node.answers = [ok(b"for b")]
        assert await transport.post(b"b") == b"for b"
    assert node.connections == 2


async def test_nobody_listens() -> None:
    with pytest.raises(ChainUnavailable):
        await LoopbackTransport("http://127.0.0.1:1").post(b"a")


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to it")
