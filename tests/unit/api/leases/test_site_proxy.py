"""Public sites of leases: a tenant's server behind the real front end, chosen by the host name alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.link.traffic import TrafficStream
from sparewatt.protocol.link.traffic import PortOpen, StreamEnd, StreamOpen, TrafficOp
from sparewatt.store.lease_sites import LeaseSiteRow, LeaseSiteStore
from tests.unit.api.leases.test_lease_sockets import BODY, RENTER, STRANGER, FakeNode, World, prepared_world
from tests.unit.gateway.small_gateway import bearer

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class MemorySites(LeaseSiteStore):
    def __init__(self) -> None:
        self.rows: dict[str, LeaseSiteRow] = {}

    async def put(self, lease_id: str, account_id: AccountId, port: int) -> LeaseSiteRow | None:
        if lease_id in self.rows and self.rows[lease_id].account_id != account_id:
            return None
        self.rows[lease_id] = LeaseSiteRow(lease_id, account_id, port)
        return self.rows[lease_id]

    async def drop(self, lease_id: str, account_id: AccountId) -> bool:
        return self.rows.pop(lease_id, None) is not None

    async def find(self, lease_id: str) -> LeaseSiteRow | None:
        return self.rows.get(lease_id)


@dataclass(slots=True)
class SiteNode(FakeNode):
    """A tenant's server that answers each connection with `reply`, once it has read what `enough` says."""

    reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    enough: bytes = b"\r\n\r\n"
    got: list[bytes] = field(default_factory=list)
    end: StreamEnd = field(default_factory=StreamEnd)

    async def _answer(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        assert isinstance(wanted, PortOpen)
        stream.opened()
        seen = b""
        while not seen.endswith(self.enough):
            item = await stream.receive()
            if item is None or item.op is TrafficOp.EOF:
                break
            seen += item.payload
        self.got.append(seen)
        await stream.send(self.reply)
        stream.send_eof()
        stream.finish(self.end)


@dataclass(slots=True)
class SiteWorld:
    world: World
    node: SiteNode
    host: str

    async def visit(self, path: str = "/", method: str = "GET", **options: Any) -> tuple[int, dict[str, str], bytes]:
        headers = {"host": self.host} | options.pop("headers", {})
        async with self.world.client.request(method, path, headers=headers, **options) as reply:
            return reply.status, {name.title(): value for name, value in reply.headers.items()}, await reply.read()


@pytest.fixture
async def site() -> AsyncIterator[SiteWorld]:
    node = SiteNode()
    async with prepared_world(node, sites=MemorySites(), body=BODY | {"ports": [8080]}) as world:
        async with world.client.post("/v1/leases/web/site", json={"port": 8080}, headers=bearer(RENTER)) as reply:
            made = await reply.json()
            assert reply.status == 200, made
        assert made["url"] == f"http://{made['lease']}.localhost:1/"
        yield SiteWorld(world, node, f"{made['lease']}.localhost:1")


async def test_a_visitor_needs_no_key_and_gets_the_tenants_page(site: SiteWorld) -> None:
    status, headers, body = await site.visit("/a%20b?c=d")
    assert (status, body, headers["Server"]) == (200, b"hello", "sparewatt")
    assert "X-Request-Id" not in headers
    head = site.node.got[0].decode()
    assert head.startswith("GET /a%20b?c=d HTTP/1.1\r\n")
    assert f"host: {site.host}\r\n" in head.lower()
    assert "connection: close\r\n" in head.lower()


async def test_none_of_our_secrets_reach_it_and_it_sets_none_of_our_cookies(site: SiteWorld) -> None:
    site.node.reply = (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: sparewatt_session=evil\r\nSet-Cookie: a=1; Domain=localhost\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    secrets = {"cookie": "sparewatt_session=abc; mine=1", "authorization": f"Bearer {RENTER}"}
    _, headers, _ = await site.visit(headers=secrets)
    head = site.node.got[0].decode()
    assert "abc" not in head
    assert RENTER not in head
    assert "mine=1" in head
    assert headers["Set-Cookie"] == "a=1"


@pytest.mark.parametrize("path", ["/", "/v1/models", "/v1/network", "/openapi.json", "/healthz", "/login", "/link/v1"])
async def test_no_path_of_ours_is_served_under_its_name(site: SiteWorld, path: str) -> None:
    _, _, body = await site.visit(path)
    assert body == b"hello"


async def test_a_model_is_not_asked_under_its_name(site: SiteWorld) -> None:
    site.node.enough = b"}"
    status, _, body = await site.visit("/v1/chat/completions", "POST", json={"model": "m"})
    assert (status, body) == (200, b"hello")
    assert site.node.got[0].endswith(b'{"model": "m"}')


async def test_a_preflight_is_the_tenants_to_answer(site: SiteWorld) -> None:
    asked = {"origin": "https://other.example", "access-control-request-method": "POST"}
    status, headers, _ = await site.visit("/v1/models", "OPTIONS", headers=asked)
    assert (status, "Access-Control-Allow-Methods" in headers) == (200, False)


@pytest.mark.parametrize("host", ["nobody.localhost", "a.b.localhost", "-.localhost"])
async def test_a_name_without_a_lease_has_a_line_of_text_and_no_page_of_ours(site: SiteWorld, host: str) -> None:
    site.host = host
    status, headers, body = await site.visit()
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == b"404: There is no site at this address.\n"


async def test_a_long_upload_and_a_long_reply_pass(site: SiteWorld) -> None:
    sent = bytes(range(256)) * 4_000 + b"END"
    site.node.enough = b"END"
    site.node.reply = b"HTTP/1.1 200 OK\r\n\r\n" + sent
    _, headers, body = await site.visit("/up", "POST", data=sent)
    assert site.node.got[0].endswith(sent)
    assert body == sent
    assert headers["Transfer-Encoding"] == "chunked"


async def test_an_upload_without_a_length_passes_in_chunks(site: SiteWorld) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    site.node.enough = b"0\r\n\r\n"
    assert (await site.visit("/up", "POST", data=pieces()))[0] == 200
    head, _, body = site.node.got[0].partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    assert body in (b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n", b"6\r\nonetwo\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", 201, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.0 404 Not Found\r\n\r\ngone", 404, b"gone"),
    ],
)
async def test_replies_come_as_http_allows_them(site: SiteWorld, reply: bytes, status: int, body: bytes) -> None:
    site.node.reply = reply
    found_status, _, found = await site.visit()
    assert (found_status, found) == (status, body)


async def test_the_head_of_a_page_has_no_body(site: SiteWorld) -> None:
    site.node.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    status, headers, body = await site.visit(method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, "5", b"")


@pytest.mark.parametrize(
    "reply", [b"SSH-2.0-OpenSSH\r\n", b"", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"HTTP/1.1 200"]
)
async def test_what_is_no_http_is_told_as_text(site: SiteWorld, reply: bytes) -> None:
    site.node.reply = reply
    status, headers, _ = await site.visit()
    assert (status, headers["Content-Type"]) == (502, "text/plain; charset=utf-8")


async def test_a_reply_that_breaks_off_is_not_passed_off_as_whole(site: SiteWorld) -> None:
    site.node.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"
    with pytest.raises(Exception, match=r"(?i)payload|closed|disconnect"):
        await site.visit()


async def test_only_the_renter_opens_and_closes_it_and_only_for_a_port_of_the_order(site: SiteWorld) -> None:
    client = site.world.client
    for key, port, status in ((STRANGER, 8080, 404), (RENTER, 22, 422), (RENTER, 0, 400)):
        async with client.post("/v1/leases/web/site", json={"port": port}, headers=bearer(key)) as reply:
            assert reply.status == status
    async with client.delete("/v1/leases/web/site", headers=bearer(STRANGER)) as reply:
        assert reply.status == 404
    assert (await site.visit())[0] == 200
    async with client.delete("/v1/leases/web/site", headers=bearer(RENTER)) as reply:
        assert reply.status == 200
    assert (await site.visit())[0] == 404
    async with client.delete("/v1/leases/web/site", headers=bearer(RENTER)) as reply:
        assert reply.status == 404


async def test_the_dashboard_is_where_it_was(site: SiteWorld) -> None:
    site.host = "localhost:1"
    status, headers, _ = await site.visit("/v1/network")
    assert status == 200
    assert "X-Request-Id" in headers
