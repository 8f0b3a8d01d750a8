"""The server for strangers: whole bodies within bounds, slow and silent clients cut off, limits per address."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.protocol.signing import keccak256
from sparewatt.validator import address_limits, server
from sparewatt.validator.body_signature import HASH_HEADER, SIGNATURE_HEADER, SMALL_BODY_BYTES_MAX, SignedBody
from sparewatt.validator.server import (
    BODY_BYTES_MAX,
    LARGE_AT_ONCE_MAX,
    BoundedServer,
    ServerReply,
    ServerRequest,
    error_reply,
)


def sender(headers: Mapping[str, str]) -> SignedBody | None:
    """The signature is the sender's name."""
    name = headers.get(SIGNATURE_HEADER, "")
    return SignedBody(name, bytes.fromhex(headers[HASH_HEADER][2:])) if name else None


def signed(body: bytes, *, name: str = "validator") -> dict[str, str]:
    return {HASH_HEADER: "0x" + keccak256(body).hex(), SIGNATURE_HEADER: name}


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to it")


async def echo(request: ServerRequest) -> ServerReply:
    if request.path == "/query":
        return ServerReply(str(sorted(request.query.items())).encode(), content_type="text/plain")
    if request.path == "/error":
        return error_reply(404, "not_found", "Nothing here.")
    return ServerReply(request.body, headers={"X-Method": request.method})


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[BoundedServer, str, int]]:
    bounded = BoundedServer(echo, clock=SystemClock(), large_body_sender=sender)
    port = await bounded.start("127.0.0.1", 0)
    try:
        yield bounded, f"http://127.0.0.1:{port}", port
    finally:
        await bounded.close()


async def raw(port: int, sent: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def test_a_request_is_answered() -> None:
    async with listening() as (bounded, url, _), aiohttp.ClientSession() as session:
        async with session.post(url + "/echo", data=b"hello") as reply:
            assert (reply.status, await reply.read()) == (200, b"hello")
            assert reply.headers["X-Method"] == "POST"
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
        async with session.get(url + "/query?a=1&b=2") as reply:
            assert await reply.text() == "[('a', '1'), ('b', '2')]"
        async with session.get(url + "/error") as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")
        assert bounded.requests == 3


@pytest.mark.parametrize("most", [SMALL_BODY_BYTES_MAX, BODY_BYTES_MAX])
async def test_a_body_that_is_too_large_is_refused_by_its_length_and_by_its_bytes(most: int) -> None:
    """A small one for anyone, a large one for a sender that signed it."""
    is_large = most == BODY_BYTES_MAX

    def headers(body: bytes) -> dict[str, str]:
        return signed(body) if is_large else {}

    async with listening() as (_, url, _), aiohttp.ClientSession() as session:
        body = bytes(most)
        async with session.post(url, data=io.BytesIO(body), headers=headers(body)) as reply:
            assert reply.status == 200
        body = bytes(most + 1)
        async with session.post(url, data=io.BytesIO(body), headers=headers(body)) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (413, "body_too_large")

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(most // 8_192 + 2):
                yield bytes(8_192)

        try:
            async with session.post(url, data=pieces(), headers=headers(body)) as reply:
                assert reply.status == 413
        except aiohttp.ClientOSError:
            pass  # the server closed while the client was still sending


async def test_a_large_body_is_not_read_without_a_signature_and_not_handled_with_that_of_another() -> None:
    async with listening() as (bounded, url, _), aiohttp.ClientSession() as session:
        body = bytes(SMALL_BODY_BYTES_MAX + 1)
        for headers in (signed(body, name=""), signed(body[1:])):
            async with session.post(url, data=body, headers=headers) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (403, "body_not_signed")
        assert bounded.refused == 2
        async with session.post(url, data=body, headers=signed(body)) as reply:
            assert reply.status == 200


async def test_large_bodies_of_one_sender_at_once_are_bounded() -> None:
    """Each may have megabytes; another sender has its own."""
    async with listening() as (bounded, url, port), aiohttp.ClientSession() as session:
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n{HASH_HEADER}: 0x00\r\n{SIGNATURE_HEADER}: "
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(LARGE_AT_ONCE_MAX)]
        for _, writer in held:
            writer.write(f"{head}validator\r\n\r\n1".encode())
        await until(lambda: bounded._large["validator"] == LARGE_AT_ONCE_MAX)
        for name, status in (("validator", 429), ("other", 200)):
            async with session.post(url, data=b"x", headers=signed(b"x", name=name)) as reply:
                assert reply.status == status
        for _, writer in held:
            writer.close()
        await until(lambda: not bounded._large)


async def test_replies_are_counted_like_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small question about a large table is no cheap way to keep a validator busy."""
    async with listening() as (bounded, url, _), aiohttp.ClientSession() as session:
        monkeypatch.setattr(address_limits, "BYTES_PER_S", 0.001)
        bounded.limits.count_bytes("127.0.0.1", int(address_limits.BYTES_BURST) - 3, now_s=bounded.clock.now_s())
        async with session.post(url, data=b"12") as reply:
            assert reply.status == 200
        async with session.get(url) as reply:
            assert reply.status == 429


async def test_a_compressed_body_is_not_unpacked() -> None:
    async with listening() as (_, url, _), aiohttp.ClientSession() as session:
        headers = {"Content-Encoding": "gzip"}
        async with session.post(url, data=b"not unpacked", headers=headers) as reply:
            assert await reply.read() == b"not unpacked"


async def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.05)
    async with listening() as (_, _, port):
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n\r\n12345"
        assert b" 408 " in (await raw(port, head)).split(b"\r\n")[0]


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_REQUEST_S", 0.05)
    async with listening() as (_, _, port):
        assert await raw(port, b"") == b""
        assert await raw(port, b"GET / HT") == b""


async def test_a_head_that_is_too_large_is_refused() -> None:
    async with listening() as (_, _, port):
        head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 10_000 + b"\r\n\r\n"
        assert b" 400 " in (await raw(port, head)).split(b"\r\n")[0]


async def test_too_many_requests_are_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "REQUESTS_BURST", 2.0)
    monkeypatch.setattr(address_limits, "REQUESTS_PER_S", 0.001)
    monkeypatch.setattr(address_limits._Use.__init__, "__defaults__", (2.0, 1e9, 0.0, 0, 0))
    async with listening() as (bounded, url, _), aiohttp.ClientSession() as session:
        statuses = []
        for _ in range(3):
            async with session.get(url) as reply:
                statuses.append((reply.status, "Retry-After" in reply.headers))
        assert statuses == [(200, False), (200, False), (429, True)]
        assert bounded.refused == 1


async def test_connections_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "CONNECTIONS_PER_ADDRESS", 2)
    async with listening() as (bounded, url, port), aiohttp.ClientSession() as session:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _ in range(500):
            if bounded.limits._connections == 2:
                break
            await asyncio.sleep(0.002)
        with pytest.raises(aiohttp.ClientError):
            await session.get(url)
        for _, writer in held:
            writer.close()
        for _ in range(500):
            if bounded.limits._connections == 0:
                break
            await asyncio.sleep(0.002)
        async with session.get(url) as reply:
            assert reply.status == 200


async def test_clients_with_many_connections_do_not_shut_out_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "CONNECTIONS_MAX", 4)
    async with listening() as (bounded, url, port), aiohttp.ClientSession() as session:
        ends = [("127.0.0.2", 0), ("127.0.0.3", 0)]
        held = [await asyncio.open_connection("127.0.0.1", port, local_addr=end) for end in ends * 2]
        await until(lambda: bounded.limits._connections == 4)
        for _ in range(3):
            async with session.get(url) as reply:
                assert reply.status == 200
        assert bounded.limits._connections == 4
        async with asyncio.timeout(10):
            closed, _ = await asyncio.wait([asyncio.ensure_future(reader.read()) for reader, _ in held], timeout=0.05)
        assert len(closed) == 1
        for _, writer in held:
            writer.close()


async def test_a_port_in_use_is_an_error_of_the_system() -> None:
    async with listening() as (_, _, port):
        with pytest.raises(OSError, match="address already in use"):
            await BoundedServer(echo, clock=SystemClock(), large_body_sender=sender).start("127.0.0.1", port)
