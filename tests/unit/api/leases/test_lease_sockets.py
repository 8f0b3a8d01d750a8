"""Logs, commands and ports of a lease over the real front end, with a node in memory: who may, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import msgspec
import pytest

from sparewatt.api.nodes import traffic
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import KeyId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.traffic import StreamAcceptor, TrafficStream
from sparewatt.link.websocket_library import WebSocketLibrary
from sparewatt.node.leases.access.traffic_client import TrafficClient
from sparewatt.protocol.link.traffic import (
    ExecOpen,
    LogsOpen,
    PortOpen,
    StreamEnd,
    StreamOpen,
    TerminalResize,
    TrafficOp,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.lease_sites import LeaseSiteStore
from tests.unit.api.market.test_market import market_of
from tests.unit.gateway.small_gateway import ADMIN, Client, bearer, key_row, make_services, running
from tests.unit.leasing.orders.memory_orders import OrderDatabase
from tests.unit.market.market_events import (
    ALICE,
    ORDER,
    accepted,
    an_event,
    created,
    deposited,
    lookup,
    registered,
    snapshot,
)
from tests.waiting import CEILING_S, until

RENTER, STRANGER = "sk-sw-renter", "sk-sw-stranger"
NODE = SigningKey.generate(rng=seeded(7))
BONDED = an_event("stake_registry.BondChanged", provider=ALICE, free=10_000_000, locked=0, unbonding=0)
OURS = "http://gateway.example:8484"
EVENTS = [
    *registered(),
    an_event("provider_registry.NodeKeyChanged", provider=ALICE, node_key=NODE.address),
    BONDED,
    snapshot(1),
    lookup(),
    deposited(),
    accepted(),
    created(),
]
BODY = {"image": "me/web:1", "duration": "2h", "name": "web", "policy": {"max_hourly": "1"}}


@dataclass(slots=True)
class FakeNode(StreamAcceptor):
    """Answers streams as a lease with a program that echoes would; no traffic socket unless it is asked for one."""

    url: str = ""
    asked: int = 0
    wanted: list[StreamOpen] = field(default_factory=list)
    refusal: StreamEnd | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    session: aiohttp.ClientSession | None = None
    gone: list[TrafficStream] = field(default_factory=list)
    library: WebSocketLibrary = "auto"

    def request_traffic(self) -> None:
        assert self.session is not None
        self.asked += 1
        client = TrafficClient(streams=self, session=self.session, key=NODE, rng=seeded(3), library=self.library)
        self._start(client.serve(self.url))

    def accept(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        self.wanted.append(wanted)
        self._start(self._answer(stream, wanted))

    def drop(self, stream: TrafficStream) -> None:
        self.gone.append(stream)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        if self.refusal is not None:
            stream.finish(self.refusal)
            return
        stream.opened()
        if isinstance(wanted, LogsOpen):
            await stream.send("grüße\n".encode())
            await stream.send(b"trouble\n", TrafficOp.ERR)
            stream.finish(StreamEnd())
            return
        while (item := await stream.receive()) is not None and item.op is not TrafficOp.EOF:
            await stream.send(b"size" if item.op is TrafficOp.RESIZE else item.payload)
        if isinstance(wanted, ExecOpen):
            await stream.send(b"bye", TrafficOp.ERR)
        else:
            stream.send_eof()
        stream.finish(StreamEnd(exit_code=5 if isinstance(wanted, ExecOpen) else None))


@dataclass(slots=True)
class World:
    client: Client
    node: FakeNode
    services: Services

    def socket(self, path: str, *, key: str | None = RENTER, origin: str | None = None) -> Any:
        headers = (bearer(key) if key is not None else {}) | ({"origin": origin} if origin is not None else {})
        return self.client.ws_connect(f"/v1/leases/{path}", headers=headers)

    async def refused(self, path: str, **how: Any) -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await self.socket(path, **how)
        return caught.value.status

    async def ticket(self, wanted: str = "web", key: str = RENTER) -> str:
        async with self.client.post(f"/v1/leases/{wanted}/tickets", headers=bearer(key)) as reply:
            assert reply.status == 201
            return str((await reply.json())["ticket"])

    async def get(self, path: str, key: str = RENTER) -> tuple[int, str]:
        async with self.client.get(f"/v1/leases/{path}", headers=bearer(key)) as reply:
            return reply.status, await reply.text()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with prepared_world(FakeNode()) as made:
        yield made


@asynccontextmanager
async def prepared_world(
    node: FakeNode, *, sites: LeaseSiteStore | None = None, body: object = BODY
) -> AsyncIterator[World]:
    """A gateway with one lease, whose machine is `node`."""
    database = OrderDatabase()
    if sites is not None:
        database.lease_sites = sites
    links: Any = {NodeId(NODE.address): node}
    services = make_services(
        NodeTable(), database=database, links=links, development=True, chain_url="http://127.0.0.1:1"
    )
    services.keys.put(
        [
            replace(key_row("renter", RENTER, "lease"), id=KeyId("key_renter")),
            key_row("stranger", STRANGER, "lease"),
        ]
    )
    services.market = await market_of(EVENTS)
    services.auth.origins = frozenset({OURS})
    services.lease_traffic.clock = SystemClock()
    database.holds.free_nano = 100 * 10**9
    async with running(services) as client, aiohttp.ClientSession() as session:
        port = client.server.port
        node.url, node.session = f"http://127.0.0.1:{port}", session
        services.lease_traffic.hosts = {f"127.0.0.1:{port}"}
        database.orders.order_ids = [ORDER]
        async with client.post("/v1/leases", json=body, headers=bearer(RENTER)) as reply:
            assert reply.status == 201, await reply.text()
        yield World(client, node, services)
        for task in list(node.tasks):
            task.cancel()
        await asyncio.gather(*node.tasks, return_exceptions=True)


async def messages(socket: aiohttp.ClientWebSocketResponse) -> tuple[bytes, list[dict[str, Any]]]:
    """Bytes and notices until it is closed."""
    data, notices = b"", []
    async with asyncio.timeout(CEILING_S):
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                data += message.data
            else:
                notices.append(json.loads(message.data))
    return data, notices


# logs


async def test_a_log_is_plain_text_and_the_machine_is_asked_for_its_socket_once(world: World) -> None:
    assert await world.get("web/logs?tail=5") == (200, "grüße\ntrouble\n")
    assert await world.get("web/logs?follow=true") == (200, "grüße\ntrouble\n")
    assert world.node.asked == 1
    assert world.node.wanted == [
        LogsOpen(order_id=ORDER, tail=5),
        LogsOpen(order_id=ORDER, follow=True),
    ]


async def test_a_log_as_json_tells_the_streams_apart(world: World) -> None:
    _, text = await world.get("web/logs?format=json")
    assert [json.loads(line) for line in text.splitlines()] == [
        {"text": "grüße\n"},
        {"stream": "stderr", "text": "trouble\n"},
    ]


async def test_a_lease_without_a_container_is_a_conflict(world: World) -> None:
    world.node.refusal = StreamEnd(code="not_running", message="its container was not made yet")
    status, text = await world.get("web/logs")
    assert (status, json.loads(text)["error"]["code"]) == (409, "lease_not_running")


@pytest.mark.parametrize("query", ["tail=-1", "tail=10001", "tail=x", "follow=yes", "format=xml"])
async def test_a_query_that_makes_no_sense_is_refused(world: World, query: str) -> None:
    assert (await world.get(f"web/logs?{query}"))[0] == 400
    assert world.node.asked == 0


# commands


async def test_a_command_has_input_output_sizes_and_an_exit_code(world: World) -> None:
    socket = await world.socket("web/exec")
    await socket.send_str(json.dumps({"command": ["sh"], "tty": True, "columns": 90, "rows": 20}))
    assert json.loads(await socket.receive_str(timeout=CEILING_S)) == {"started": True}
    await socket.send_bytes(b"ls\n")
    assert await socket.receive_bytes(timeout=CEILING_S) == b"\x01ls\n"
    await socket.send_str(msgspec.json.encode({"resize": TerminalResize(100, 30)}).decode())
    assert await socket.receive_bytes(timeout=CEILING_S) == b"\x01size"
    await socket.send_str('{"eof": true}')
    assert await messages(socket) == (b"\x02bye", [{"exit_code": 5, "ended": True}])
    assert world.node.wanted == [ExecOpen(order_id=ORDER, command=("sh",), tty=True, columns=90, rows=20)]


@pytest.mark.parametrize("library", ["auto", "aiohttp"])
async def test_a_quiet_terminal_outlives_many_pings(
    world: World, monkeypatch: pytest.MonkeyPatch, library: WebSocketLibrary
) -> None:
    monkeypatch.setattr(traffic, "PING_S", 0.05)
    world.node.library = library
    socket = await world.socket("web/exec")
    await socket.send_str('{"command": ["sh"]}')
    await socket.receive_str(timeout=CEILING_S)
    await asyncio.sleep(0.5)  # ten pings
    await socket.send_bytes(b"still here")
    assert await socket.receive_bytes(timeout=CEILING_S) == b"\x01still here"
    assert world.node.asked == 1
    await socket.close()


async def test_a_client_that_leaves_ends_the_command(world: World) -> None:
    socket = await world.socket("web/exec")
    await socket.send_str('{"command": ["sh"]}')
    await socket.receive_str(timeout=CEILING_S)
    await socket.close()
    await until(lambda: len(world.node.gone) == 1)


@pytest.mark.parametrize(
    "first", ['{"command": []}', "{}", "no json", '{"command": ["a"], "rm": 1}', '{"command": ["a\\u0000"]}']
)
async def test_a_command_that_makes_no_sense_is_told_and_never_sent(world: World, first: str) -> None:
    socket = await world.socket("web/exec")
    await socket.send_str(first)
    _, notices = await messages(socket)
    assert [notice["error"]["type"] for notice in notices] == ["invalid_request_error"]
    assert world.node.wanted == []


async def test_a_control_message_that_makes_no_sense_ends_the_command(world: World) -> None:
    socket = await world.socket("web/exec")
    await socket.send_str('{"command": ["sh"]}')
    await socket.send_str('{"kill": 9}')
    _, notices = await messages(socket)
    assert "error" in notices[-1]
    await until(lambda: len(world.node.gone) == 1)


# ports


async def test_a_port_carries_bytes_both_ways_until_either_side_ends(world: World) -> None:
    socket = await world.socket("web/ports/8080")
    sent = bytes(range(256)) * 2_000
    for at in range(0, len(sent), 50_000):
        await socket.send_bytes(sent[at : at + 50_000])
    await socket.send_str('{"eof": true}')
    assert await messages(socket) == (sent, [{"eof": True}, {"ended": True}])
    assert world.node.wanted == [PortOpen(order_id=ORDER, port=8080)]


@pytest.mark.parametrize(
    ("code", "status"), [("unknown_port", 422), ("unreachable", 502), ("not_running", 409), ("unavailable", 503)]
)
async def test_a_port_that_cannot_be_reached_is_told_before_the_socket_opens(
    world: World, code: Any, status: int
) -> None:
    world.node.refusal = StreamEnd(code=code)
    assert await world.refused("web/ports/8080") == status


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
async def test_a_port_that_is_none_is_refused(world: World, port: str) -> None:
    assert await world.refused(f"web/ports/{port}") == 400


# who may


@pytest.mark.parametrize("path", ["web/exec", "web/ports/8080"])
async def test_nobody_but_the_renter_opens_a_socket(world: World, path: str) -> None:
    assert await world.refused(path, key=STRANGER) == 404
    assert await world.refused(path, key=ADMIN) == 404, "an operator has no way into somebody's lease"
    assert await world.refused(path, key=None) == 401
    assert await world.refused(path, key="sk-sw-wrong") == 401
    assert world.node.asked == 0


async def test_nobody_but_the_renter_reads_a_log_or_gets_a_ticket(world: World) -> None:
    for key in (STRANGER, ADMIN):
        assert (await world.get("web/logs", key))[0] == 404
        async with world.client.post("/v1/leases/web/tickets", headers=bearer(key)) as reply:
            assert reply.status == 404


async def test_a_ticket_opens_one_socket_from_our_own_page(world: World) -> None:
    ticket = await world.ticket()
    socket = await world.socket(f"web/exec?ticket={ticket}", key=None, origin=OURS)
    await socket.close()
    assert await world.refused(f"web/exec?ticket={ticket}", key=None, origin=OURS) == 401


async def test_a_page_of_another_site_opens_nothing_with_ticket_or_key(world: World) -> None:
    ticket = await world.ticket()
    assert await world.refused(f"web/exec?ticket={ticket}", key=None, origin="https://evil.example") == 403
    assert await world.refused("web/exec", origin="https://evil.example") == 403
    assert await world.refused("web/ports/8080", origin="null") == 403


async def test_a_ticket_needs_an_origin_and_is_for_its_lease_only(world: World) -> None:
    assert await world.refused(f"web/exec?ticket={await world.ticket()}", key=None) == 403
    use = world.services.access_tickets.issue(replace_account(), "another-lease")
    assert await world.refused(f"web/exec?ticket={use}", key=None, origin=OURS) == 404


async def test_an_old_ticket_and_a_made_up_one_open_nothing(world: World) -> None:
    ticket = await world.ticket()
    world.services.clock.advance(31.0)  # type: ignore[attr-defined]
    assert await world.refused(f"web/exec?ticket={ticket}", key=None, origin=OURS) == 401
    assert await world.refused("web/exec?ticket=0.abc", key=None, origin=OURS) == 401


async def test_a_cookie_alone_opens_nothing(world: World) -> None:
    cookies = {"cookie": "sparewatt_session=anything", "origin": OURS}
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await world.client.ws_connect("/v1/leases/web/exec", headers=cookies)
    assert caught.value.status == 401


async def test_without_an_upgrade_it_is_told_what_it_is(world: World) -> None:
    status, text = await world.get("web/exec")
    assert (status, "WebSocket" in text) == (400, True)


async def test_a_websocket_elsewhere_is_answered_as_plain_http(world: World) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await world.client.ws_connect("/v1/leases/web", headers=bearer(RENTER))
    assert caught.value.status == 200


def replace_account() -> Any:
    return key_row("renter", RENTER, "lease").account_id
