"""The front end on a real socket: what every reply says of who serves, and what broken bodies leave in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sparewatt.core.limits import BODY_FIELDS_MAX, READ_PER_TURN_BYTES, REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.addresses import listen
from sparewatt.gateway.front import listening
from sparewatt.gateway.front.connection import Connection
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.services import Services
from tests.property.front import Door, Socket, Turns
from tests.unit.gateway.small_gateway import USER, make_services


@asynccontextmanager
async def served(services: Services) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0)
    async with listening(make_app(services), listener):
        yield listener.getsockname()[1]


async def exchange(port: int, sent: bytes) -> bytes:
    """All that comes back until the other side closes, which need not wait for more of us once its reply is here."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, _, behind = head.partition(b"\r\ncontent-length: ")
        body = await reader.readexactly(int(behind.split(b"\r\n")[0]))
        writer.write_eof()
        rest = await reader.read()
    writer.close()
    return head + (body + rest).lower()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
        (b"GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404),
        (b"GET /link/v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400),
        (b"OPTIONS /v1/models HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nConnection: close\r\n\r\n", 405),
        (b"this is no HTTP\r\n\r\n", 400),
    ],
)
async def test_no_reply_tells_what_the_gateway_is_made_of(sent: bytes, status: int) -> None:
    async with served(make_services()) as port:
        received = await exchange(port, sent)
    assert received.startswith((b"http/1.1 %d " % status, b"http/1.0 %d " % status))
    assert b"\r\nserver: sparewatt\r\n" in received
    assert b"aiohttp" not in received
    assert b"python" not in received
    assert b"strict-transport-security" not in received


async def test_who_serves_by_tls_says_that_nothing_else_is_to_be_used() -> None:
    services = make_services()
    services.settings = replace(services.settings, tls_cert=Path("a.crt"), tls_key=Path("a.key"))
    async with served(services) as port:
        received = await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"\r\nstrict-transport-security: max-age=31536000\r\n" in received


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/login", "/healthz", "/v1/nowhere"])
async def test_a_body_in_a_broken_encoding_is_no_crash(
    caplog: pytest.LogCaptureFixture, encoding: str, path: str
) -> None:
    body = b"this is not compressed"
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {USER}\r\nContent-Encoding: {encoding}\r\n"
    async with served(make_services()) as port:
        received = await exchange(port, head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert received.startswith(b"http/1.1 4")
    assert [(record.name, record.message) for record in caplog.records if record.levelname == "ERROR"] == []
    assert not any(record.exc_info for record in caplog.records)


async def test_what_is_refused_by_its_head_is_counted_logged_and_told_to_pages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    services = make_services()
    services.settings = replace(services.settings, request_log=True)
    caplog.set_level("INFO")
    lines = (b"POST /v1/chat/completions HTTP/1.1", b"Host: a", b"Origin: http://b", b"Content-Encoding: br")
    async with served(services) as port:
        received = await exchange(port, b"\r\n".join(lines) + b"\r\nContent-Length: 0\r\n\r\n")
    assert received.startswith(b"http/1.1 415 ")
    assert b"\r\naccess-control-allow-origin: *\r\n" in received
    (line,) = [record.__dict__ for record in caplog.records if record.message == "request_finished"]
    assert services.history.tally.take(("error",))
    assert "unsupported_media_type" in str(line)


async def test_a_body_of_very_many_fields_is_refused_before_all_of_it_is_here() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
    async with served(make_services()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % (USER.encode(), REQUEST_BODY_BYTES_MAX) + b'{"a":[' + b'{"b":1},' * (BODY_FIELDS_MAX + 1))
        async with asyncio.timeout(60):
            assert await reader.readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"
        writer.close()


UPLOAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


def connected() -> tuple[Connection, Socket, Turns]:
    turns, socket = Turns(), Socket()
    connection = Connection(Door(turns), cast(asyncio.AbstractEventLoop, turns))
    connection.connection_made(socket)
    return connection, socket, turns


def test_who_sends_much_at_once_is_read_on_when_others_had_a_turn() -> None:
    connection, socket, turns = connected()
    connection.data_received(UPLOAD)
    assert socket.is_reading()
    connection.data_received(bytes(READ_PER_TURN_BYTES))
    assert not socket.is_reading()
    turns.run()
    assert socket.is_reading()
