"""WebSockets of visitors: a tenant's real WebSocket server behind the real front end, and none of our cookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sparewatt.api.leases import site_sockets
from sparewatt.link.traffic import StreamOver, TrafficStream
from sparewatt.protocol.link.traffic import PortOpen, StreamEnd, StreamOpen, TrafficOp
from tests.unit.api.leases.test_lease_sockets import BODY, RENTER, FakeNode, World, prepared_world
from tests.unit.api.leases.test_site_proxy import MemorySites
from tests.unit.gateway.small_gateway import bearer
from tests.waiting import until

BIG = bytes(range(256)) * 8_000
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


@dataclass(slots=True)
class PortNode(FakeNode):
    """Carries a port as a node does, to a real server on loopback."""

    port: int = 0

    async def _answer(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        assert isinstance(wanted, PortOpen)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        stream.opened()
        pumps = [asyncio.create_task(each) for each in (self._in(stream, writer), self._out(stream, reader))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
        stream.finish(StreamEnd())

    async def _in(self, stream: TrafficStream, writer: asyncio.StreamWriter) -> None:
        while (item := await stream.receive()) is not None and item.op is not TrafficOp.EOF:
            writer.write(item.payload)
            await writer.drain()

    async def _out(self, stream: TrafficStream, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(10_000):
                await stream.send(data)
            stream.send_eof()
        except (StreamOver, OSError):
            return


@dataclass(slots=True)
class Tenant:
    """A WebSocket server that echoes."""

    heads: list[dict[str, str]] = field(default_factory=list)
    open: int = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        if request.path == "/page":
            return web.Response(text="a page")
        socket = web.WebSocketResponse(protocols=("chat",), max_msg_size=0)
        socket.headers["Set-Cookie"] = "sparewatt_session=evil"
        await socket.prepare(request)
        self.open += 1
        try:
            async for message in socket:
                if message.data == "end":
                    await socket.close(code=4_001, message=b"as asked")
                elif message.type is aiohttp.WSMsgType.TEXT:
                    await socket.send_str(f"echo {message.data}")
                else:
                    await socket.send_bytes(message.data)
        finally:
            self.open -= 1
        return socket


@dataclass(slots=True)
class SocketWorld:
    world: World
    tenant: Tenant
    host: str

    def connect(self, path: str = "/live", **headers: str) -> Any:
        options: dict[str, Any] = {"protocols": ("chat",), "max_msg_size": 0}
        return self.world.client.ws_connect(path, headers={"host": self.host, **headers}, **options)


@pytest.fixture
async def site() -> AsyncIterator[SocketWorld]:
    tenant = Tenant()
    app = web.Application()
    app.router.add_get("/{path:.*}", tenant.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    node = PortNode(port=runner.addresses[0][1])
    async with prepared_world(node, sites=MemorySites(), body=BODY | {"ports": [8080]}) as world:
        async with world.client.post("/v1/leases/web/site", json={"port": 8080}, headers=bearer(RENTER)) as reply:
            made = await reply.json()
        yield SocketWorld(world, tenant, f"{made['lease']}.localhost:1")
    for task in node.tasks:
        task.cancel()
    await asyncio.gather(*node.tasks, return_exceptions=True)
    await runner.cleanup()


async def test_messages_pass_both_ways_and_so_does_the_close(site: SocketWorld) -> None:
    async with asyncio.timeout(20), site.connect() as socket:
        assert socket.protocol == "chat"
        for number in range(20):
            await socket.send_str(str(number))
            assert (await socket.receive()).data == f"echo {number}"
        await socket.send_bytes(BIG)
        assert (await socket.receive()).data == BIG
        await socket.send_str("end")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 4_001


async def test_none_of_our_cookies_and_keys_pass_and_the_origin_does(site: SocketWorld) -> None:
    secrets = {"cookie": "sparewatt_session=abc; mine=1", "authorization": f"Bearer {RENTER}"}
    async with asyncio.timeout(20), site.connect(origin="https://page.example", **secrets) as socket:
        assert "Set-Cookie" not in socket._response.headers
    (head,) = site.tenant.heads
    assert (head["cookie"], head["origin"], "authorization" in head) == ("mine=1", "https://page.example", False)
    assert "x-forwarded-for" in head


async def test_a_visitor_that_leaves_ends_it_at_the_site(site: SocketWorld) -> None:
    async with asyncio.timeout(20):
        socket = await site.connect()
        await socket.send_str("x")
        await socket.receive()
        assert site.tenant.open == 1
        socket._response.connection.transport.abort()
        await until(lambda: site.tenant.open == 0)
        await socket.close()


async def test_a_site_that_does_not_switch_gives_its_page_and_the_connection_ends(site: SocketWorld) -> None:
    offer = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": KEY, "sec-websocket-version": "13"}
    headers = {"host": site.host} | offer
    async with asyncio.timeout(20), site.world.client.get("/page", headers=headers) as reply:
        assert (reply.status, await reply.text()) == (200, "a page")
        assert reply.headers["Connection"] == "close"


async def test_a_site_that_is_closed_loses_its_sockets(site: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_sockets, "LOOK_S", 0.01)
    async with asyncio.timeout(20), site.connect() as socket:
        async with site.world.client.delete("/v1/leases/web/site", headers=bearer(RENTER)) as reply:
            assert reply.status == 200
        message = await socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR)


async def test_a_site_has_so_many_sockets_and_pages_are_still_served(
    site: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparewatt.api.leases.site_proxy.SOCKETS_MAX", 2)
    async with asyncio.timeout(20), site.connect(), site.connect():
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await site.connect()
        assert refused.value.status == 429
        async with site.world.client.get("/page", headers={"host": site.host}) as reply:
            assert reply.status == 200


@pytest.mark.parametrize("host", ["nobody.localhost", "localhost:1"])
async def test_elsewhere_no_socket_is_opened(site: SocketWorld, host: str) -> None:
    site.host = host
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await site.connect("/live")
    assert refused.value.status == 404
    assert site.tenant.heads == []
