"""A connection: headers of every reply, broken bodies, fair queueing, and requests that come late in a tick."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any, cast

import pytest

from sparewatt.accounts.principal import Principal
from sparewatt.api.inference.chat import read_chat
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import READ_PER_TICK_BYTES, REQUEST_BODY_BYTES_MAX
from sparewatt.edge.connection import BODIES_BYTES_MAX, Connection
from sparewatt.edge.connection_registry import CONNECTIONS_CLOSED_PER_TICK, KnownHead
from sparewatt.edge.exchange import Endpoint, Exchange
from sparewatt.edge.http1 import RequestHead
from sparewatt.inference.admission.model import Priority
from sparewatt.inference.matcher.formula import RANKINGS
from sparewatt.inference.service import RequestOptions
from sparewatt.protocol.openai.json_complexity import BODY_FIELDS_MAX
from tests.property.front import QuickRegistry, Socket, Ticks, replies_to
from tests.unit.edge.served import served
from tests.unit.gateway.small_gateway import USER, make_services


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
async def test_no_reply_names_the_gateway_s_libraries(sent: bytes, status: int) -> None:
    async with served(make_services()) as port:
        received = await exchange(port, sent)
    assert received.startswith((b"http/1.1 %d " % status, b"http/1.0 %d " % status))
    assert b"\r\nserver: sparewatt\r\n" in received
    assert b"aiohttp" not in received
    assert b"python" not in received
    assert b"strict-transport-security" not in received


async def test_a_gateway_with_tls_sends_hsts() -> None:
    async with served(make_services(tls_cert=Path("a.crt"), tls_key=Path("a.key"))) as port:
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


async def test_a_request_refused_by_its_head_is_counted_logged_and_readable_by_pages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    services = make_services(request_log=True)
    caplog.set_level("INFO")
    lines = (b"POST /v1/chat/completions HTTP/1.1", b"Host: a", b"Origin: http://b", b"Content-Encoding: br")
    async with served(services) as port:
        received = await exchange(port, b"\r\n".join(lines) + b"\r\nContent-Length: 0\r\n\r\n")
    assert received.startswith(b"http/1.1 415 ")
    assert b"\r\naccess-control-allow-origin: *\r\n" in received
    (line,) = [record.__dict__ for record in caplog.records if record.message == "request_finished"]
    assert services.counter.interval.take(("error",))
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


def connected(registry: QuickRegistry | None = None) -> tuple[Connection, Socket, Ticks]:
    ticks, socket = registry.ticks if registry is not None else Ticks(), Socket()
    connection = Connection(registry or QuickRegistry(ticks), cast(asyncio.AbstractEventLoop, ticks))
    connection.connection_made(socket)
    return connection, socket, ticks


def connected_late() -> tuple[Connection, Socket, Ticks, QuickRegistry]:
    """When a tick of the event loop has gone on for long."""
    registry = QuickRegistry(Ticks())
    registry.be_late()
    return *connected(registry), registry


def test_a_large_upload_is_read_a_piece_per_tick() -> None:
    connection, socket, ticks = connected()
    connection.data_received(UPLOAD)
    assert socket.is_reading()
    connection.data_received(bytes(READ_PER_TICK_BYTES))
    assert not socket.is_reading()
    ticks.run()
    assert socket.is_reading()


def test_what_was_read_at_once_is_parsed_piece_by_piece() -> None:
    connection, socket, ticks = connected()
    connection.data_received((UPLOAD + bytes(3 * READ_PER_TICK_BYTES))[: 3 * READ_PER_TICK_BYTES])
    looked_at = []
    while not socket.is_reading():
        looked_at.append(len(UPLOAD) + connection._requests[0].size_bytes)
        ticks.run_one()
    assert looked_at == [READ_PER_TICK_BYTES, 2 * READ_PER_TICK_BYTES]
    assert len(UPLOAD) + connection._requests[0].size_bytes == 3 * READ_PER_TICK_BYTES
    connection.connection_lost(None)
    assert connection._registry.bodies_bytes == 0


NOWHERE = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"
BROKEN = b"this is no HTTP\r\n\r\n"
KEYLESS = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def test_a_request_that_comes_late_in_a_tick_begins_in_a_later_one() -> None:
    connection, socket, ticks, _ = connected_late()
    connection.data_received(KEYLESS[:-1])
    assert socket.is_reading()
    connection.data_received(KEYLESS[-1:])
    assert not socket.is_reading()
    assert connection.is_busy
    assert not socket.written
    ticks.run()
    assert socket.written.startswith(b"HTTP/1.1 401 ")
    assert socket.is_reading()
    assert not connection.is_busy


def test_a_known_account_does_not_wait_for_all_requests_of_its_address() -> None:
    ticks, answered = Ticks(), []
    registry = QuickRegistry(ticks)

    class Noting(Socket):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def write(self, data: Any) -> None:
            answered.append(self._name)

    def late(name: str) -> Connection:
        connection = Connection(registry, cast(asyncio.AbstractEventLoop, ticks))
        connection.connection_made(Noting(name))
        return connection

    registry.be_late()
    for name in ("first", "second", "third"):
        late(name).data_received(KEYLESS)
    customer = late("customer")
    head = RequestHead(b"POST", b"/v1/chat/completions", "1.1", True, {"host": "a"})
    before, _, after = KEYLESS.removesuffix(b"{}").partition(b"2")
    customer._known = KnownHead(
        before,
        after,
        head=head,
        endpoint=Endpoint("/v1/chat/completions", read_chat),
        principal=Principal(AccountId("acc_a"), "user", ()),
        options=RequestOptions(RANKINGS["balanced"], Priority.NORMAL, None),
    )
    assert customer._known.body_of(KEYLESS) == b"{}"
    customer.data_received(KEYLESS)
    assert answered == []
    ticks.run()
    assert answered == ["first", "customer", "second", "third"]


def test_a_request_that_comes_while_others_are_queued_is_queued_too() -> None:
    first, socket, ticks, registry = connected_late()
    first.data_received(KEYLESS)
    registry.late_requests._end_tick()
    second, other, _ = connected(registry)
    second.data_received(KEYLESS)
    assert not other.written
    ticks.run()
    assert bytes(socket.written[:13]) == bytes(other.written[:13]) == b"HTTP/1.1 401 "


def test_a_queued_request_whose_client_disconnects_is_not_begun() -> None:
    connection, socket, ticks, registry = connected_late()
    connection.data_received(KEYLESS)
    connection.connection_lost(None)
    ticks.run()
    assert not socket.written
    assert registry.bodies_bytes == 0


@pytest.mark.parametrize(
    "sent",
    [
        [NOWHERE],
        [KEYLESS, KEYLESS],
        [KEYLESS + KEYLESS + NOWHERE],
        [KEYLESS[:40], KEYLESS[40:], NOWHERE],
        [NOWHERE + BROKEN],
        [UPLOAD + bytes(300_000), bytes(700_000) + NOWHERE, KEYLESS],
        [UPLOAD, b"{}" * 500_000 + KEYLESS, KEYLESS],
        [UPLOAD.replace(b"chat", b"bridged") + bytes(1_000_000) + KEYLESS + NOWHERE],
    ],
    ids=["bridged", "two", "pipelined", "cut", "broken", "long", "long-and-pipelined", "long-and-bridged"],
)
def test_what_is_answered_does_not_depend_on_when_it_came(sent: list[bytes]) -> None:
    def lines(replies: bytes) -> list[bytes]:
        return [line for line in replies.split(b"\r\n") if not line.startswith((b"date:", b"x-request-id:"))]

    in_time = lines(replies_to(sent))
    assert in_time[0].startswith(b"HTTP/1.1 ")
    assert lines(replies_to(sent, is_late=True)) == in_time


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (KEYLESS, 429),
        (NOWHERE, 429),
        (KEYLESS.replace(b"Host: a", b"Host: a\r\nContent-Encoding: br"), 415),
        (NOWHERE.replace(b"Host: a", b"Host: a\r\nExpect: tea"), 417),
        (KEYLESS.replace(b"Length: 2", b"Length: %d" % (REQUEST_BODY_BYTES_MAX + 1)), 413),
    ],
    ids=["model", "bridged", "encoding", "expectation", "length"],
)
def test_a_fault_of_the_head_is_reported_before_an_overload(sent: bytes, status: int) -> None:
    registry = QuickRegistry(Ticks())
    registry.bodies_bytes = BODIES_BYTES_MAX + 1
    connection, socket, ticks = connected(registry)
    connection.data_received(sent)
    ticks.run()
    assert socket.written.startswith(b"HTTP/1.1 %d " % status)
    assert socket.written.count(b"HTTP/1.1 ") == 1


def test_of_many_clients_that_disconnect_at_once_a_few_are_closed_per_tick() -> None:
    first, _, ticks = connected()
    sockets = [Socket() for _ in range(2 * CONNECTIONS_CLOSED_PER_TICK + 1)]
    for socket in sockets:
        connection = Connection(first._registry, cast(asyncio.AbstractEventLoop, ticks))
        connection.connection_made(socket)
        assert connection.eof_received()
    left = []
    for _ in range(3):
        ticks.run_one()
        left.append(sum(socket.is_closing() for socket in sockets))
    assert left == [CONNECTIONS_CLOSED_PER_TICK, 2 * CONNECTIONS_CLOSED_PER_TICK, 2 * CONNECTIONS_CLOSED_PER_TICK + 1]


def test_nothing_of_a_refused_request_is_left_to_the_collector() -> None:
    connection, socket, _ = connected()
    gc.collect()
    gc.disable()
    try:
        connection.data_received(KEYLESS)
        assert socket.written.startswith(b"HTTP/1.1 401 ")
        assert [found for found in gc.get_objects() if isinstance(found, Exchange)] == []
    finally:
        gc.enable()
