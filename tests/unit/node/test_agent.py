"""The agent against small gateways on loopback, each of which does one thing."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, web
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.test_utils import TestServer

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import JoinRefused, LinkLost
from sparewatt.core.rng import seeded
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.handshake import authenticate_node, host_of
from sparewatt.link.sockets import Socket
from sparewatt.node import agent as agent_module
from sparewatt.node.agent import BACKOFF_FIRST_S, BACKOFF_MAX_S, NodeAgent, backoff_s, describe_link_error, is_offline
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.protocol.link.frames import (
    Goodbye,
    JobRequest,
    LinkFrame,
    Opcode,
    Reject,
    Welcome,
    decode_frames,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import MODEL, Rig, chat_body, node_settings, rigged
from tests.waiting import CEILING_S, until

KEY = SigningKey.generate(rng=seeded(1))
HEARTBEAT_S = 0.01
CONNECTION = ConnectionKey("gateway.example", 443, True, True, None, None, None)


class FixedRng:
    """Always returns the same number."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


@dataclass(slots=True)
class Gateway:
    """Accepts every node and records its frames; `instead` replaces that."""

    url: str = ""
    connections: int = 0
    frames: list[LinkFrame] = field(default_factory=list)
    sockets: list[Socket] = field(default_factory=list)
    may_welcome: asyncio.Event = field(default_factory=asyncio.Event)
    instead: Callable[[Socket], Awaitable[None]] | None = None
    link_ports: tuple[int, ...] = ()
    link_port: int | None = None

    @property
    def welcome(self) -> Welcome:
        return Welcome(
            heartbeat_s=HEARTBEAT_S, gateway_version="1", link_ports=self.link_ports, link_port=self.link_port
        )

    async def serve(self, socket: Socket) -> None:
        self.connections += 1
        if self.instead is not None:
            await self.instead(socket)
            return
        await authenticate_node(socket, hosts={host_of(self.url)}, gateway_version="1", rng=seeded(2))
        await self.may_welcome.wait()
        socket.send(encode_message(Opcode.WELCOME, self.welcome))
        self.sockets.append(socket)
        while True:
            self.frames += decode_frames(await socket.receive())

    def received(self, op: Opcode) -> list[LinkFrame]:
        return [frame for frame in self.frames if frame.op is op]


@asynccontextmanager
async def running_gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    gateway.may_welcome.set()

    async def accept(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        socket = AiohttpSocket(ws)
        await asyncio.wait([asyncio.ensure_future(gateway.serve(socket))])
        socket.close()
        await socket.wait_closed()
        return ws

    app = web.Application()
    app.add_routes([web.get("/link/v1", accept)])
    async with TestServer(app) as server:
        gateway.url = str(server.make_url("/")).rstrip("/")
        yield gateway


@dataclass(slots=True)
class RunningAgent:
    """A running agent."""

    agent: NodeAgent
    rig: Rig
    gateway: Gateway
    task: asyncio.Task[None]

    async def over(self) -> None:
        async with asyncio.timeout(CEILING_S):
            await asyncio.wait([self.task])


@asynccontextmanager
async def running_agent(gateway: Gateway, data_dir: Path, *, clock: Clock | None = None) -> AsyncIterator[RunningAgent]:
    async with rigged(data_dir) as rig:
        await rig.inventory.refresh()
        agent = NodeAgent(
            settings=node_settings(data_dir, gateway_url=f"{gateway.url}/v1", drain_s=5.0),
            key=KEY,
            inventory=rig.inventory,
            jobs=rig.jobs,
            receipts=ReceiptIssuer(data_dir, KEY, clock=SystemClock()),
            session=rig.session,
            clock=clock or SystemClock(),
            rng=FixedRng(0.0),
            notify=rig.notices.append,
        )
        task = asyncio.create_task(agent.run())
        try:
            yield RunningAgent(agent, rig, gateway, task)
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(agent_module, "BACKOFF_FIRST_S", 0.01)
    async with running_gateway() as gateway:
        yield gateway


# how long to wait


@pytest.mark.parametrize("failures", [0, 1, 2, 5, 6, 7, 10, 1000])
def test_the_back_off_lies_between_a_tenth_of_its_bound_and_the_bound(failures: int) -> None:
    bound_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**failures)
    assert backoff_s(failures, rng=FixedRng(0.0)) == pytest.approx(bound_s / 10)
    assert backoff_s(failures, rng=FixedRng(0.999)) == pytest.approx(bound_s, rel=0.01)


def test_back_off_has_jitter_so_that_nodes_do_not_dial_together() -> None:
    rng = seeded(1)
    assert len({backoff_s(5, rng=rng) for _ in range(100)}) == 100


# joining


@pytest.mark.parametrize(
    ("error", "offline"),
    [
        (OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (ClientConnectorError(CONNECTION, OSError(errno.EHOSTUNREACH, "No route to host")), True),
        (ClientConnectorError(CONNECTION, ConnectionRefusedError(errno.ECONNREFUSED, "refused")), False),
        (TimeoutError(), False),
        (LinkLost("the other end closed the socket"), False),
    ],
)
def test_an_offline_machine_is_distinguished_from_a_gateway_that_is_down(error: Exception, *, offline: bool) -> None:
    assert is_offline(error) is offline


async def test_an_agent_joins_and_reports(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.received(Opcode.SPECS) and len(gateway.received(Opcode.LOAD)) > 2)
        specs = decode_message(gateway.received(Opcode.SPECS)[0].payload, NodeSpecs)
        assert specs == node.rig.inventory.specs
        assert [model.id for model in specs.models] == [MODEL]
        assert f"joined {gateway.url} as {KEY.address}" in node.rig.notices


async def test_a_report_goes_with_the_answer_to_a_ping_but_not_with_each_of_many(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HEARTBEAT_S", 60.0)
    clock, ping = ManualClock(), encode_frame(Opcode.PING, 0, bytes(8))
    async with running_agent(gateway, tmp_path, clock=clock):
        await until(lambda: gateway.received(Opcode.SPECS) and len(gateway.received(Opcode.LOAD)) == 1)
        clock.advance(60.0)
        gateway.sockets[0].send(ping + ping)
        await until(lambda: len(gateway.received(Opcode.PONG)) == 2)
        gateway.sockets[0].send(ping)
        await until(lambda: len(gateway.received(Opcode.PONG)) == 3)
        assert [frame.op for frame in gateway.frames[-4:]] == [Opcode.PONG, Opcode.LOAD, Opcode.PONG, Opcode.PONG]


async def test_what_changes_is_reported_without_waiting_for_a_heartbeat(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.received(Opcode.SPECS))
        node.rig.backend._base = "http://127.0.0.1:1"
        await node.rig.inventory.refresh()
        await until(lambda: len(gateway.received(Opcode.SPECS)) > 1)
        assert decode_message(gateway.received(Opcode.SPECS)[-1].payload, NodeSpecs).models == ()


async def test_foreign_load_is_reported_without_waiting_for_a_heartbeat(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HEARTBEAT_S", 60.0)
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.received(Opcode.SPECS) and gateway.received(Opcode.LOAD))
        await node.rig.inventory.refresh()  # no change, no report
        await node.rig.fault("stall_after_tokens", after_tokens=1)
        async with node.rig.session.post(f"{node.rig.url}/v1/chat/completions", data=chat_body()):
            await node.rig.inventory.refresh()
            await until(lambda: len(gateway.received(Opcode.LOAD)) > 1)
    assert [decode_message(frame.payload, NodeLoad).foreign for frame in gateway.received(Opcode.LOAD)] == [0, 1]


async def test_a_final_refusal_ends_the_agent(gateway: Gateway, tmp_path: Path) -> None:
    async def refuse(socket: Socket) -> None:
        await socket.receive()
        socket.send(encode_message(Opcode.REJECT, Reject(reason="token_used", message="It has been used.")))

    gateway.instead = refuse
    async with running_agent(gateway, tmp_path) as node:
        await node.over()
        assert isinstance(node.task.exception(), JoinRefused)
        assert gateway.connections == 1


async def test_after_a_temporary_refusal_the_agent_dials_again(gateway: Gateway, tmp_path: Path) -> None:
    async def postpone(socket: Socket) -> None:
        await socket.receive()
        socket.send(encode_message(Opcode.REJECT, Reject(reason="unavailable", message="Later.", final=False)))
        if gateway.connections == 3:
            gateway.instead = None

    gateway.instead = postpone
    async with running_agent(gateway, tmp_path):
        await until(lambda: gateway.received(Opcode.SPECS))
        assert gateway.connections == 4


@pytest.mark.parametrize("nonsense", [b"", b"nonsense", encode_message(Opcode.LOAD, NodeLoad())])
async def test_after_a_nonsensical_reply_the_agent_dials_again(
    gateway: Gateway, tmp_path: Path, nonsense: bytes
) -> None:
    async def babble(socket: Socket) -> None:
        gateway.instead = None
        socket.send(nonsense)

    gateway.instead = babble
    async with running_agent(gateway, tmp_path):
        await until(lambda: gateway.received(Opcode.SPECS))


# losing it


async def test_a_link_that_breaks_is_dialled_again(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path):
        await until(lambda: gateway.received(Opcode.SPECS))
        gateway.sockets[0].close()
        await until(lambda: len(gateway.sockets) == 2)


async def test_a_gateway_that_breaks_the_protocol_is_left_and_dialled_again(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path):
        await until(lambda: gateway.sockets)
        gateway.sockets[0].send(encode_message(Opcode.LOAD, NodeLoad()))
        await until(lambda: len(gateway.sockets) == 2)


async def test_a_gateway_that_has_gone_silent_is_left_and_dialled_again(gateway: Gateway, tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_agent(gateway, tmp_path, clock=clock):
        await until(lambda: gateway.received(Opcode.LOAD))
        assert len(gateway.sockets) == 1
        clock.advance(2.0)
        await until(lambda: len(gateway.sockets) == 2)


async def test_a_lost_link_stops_the_jobs_that_came_over_it(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.sockets)
        await node.rig.fault("stall_after_tokens", after_tokens=1)
        await send_job(gateway.sockets[0])
        await until(lambda: gateway.received(Opcode.DATA))
        gateway.sockets[0].close()
        await until(lambda: node.rig.jobs.count() == 0)


async def send_job(socket: Socket) -> None:
    """What a gateway sends for a job, taken from its own end of a link."""
    body = chat_body()
    meta = JobRequest(path="/v1/chat/completions", model=MODEL, body_bytes=len(body), stream=True, window_bytes=1 << 20)
    socket.send(encode_message(Opcode.OPEN, meta, stream=1) + encode_frame(Opcode.BODY, 1, body))


# stopping


async def test_an_agent_that_drains_reports_it_and_leaves_with_a_goodbye(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.received(Opcode.SPECS))
        await node.agent.drain()
        await node.over()
        await until(lambda: gateway.received(Opcode.GOODBYE))
        assert node.task.exception() is None
        assert decode_message(gateway.received(Opcode.LOAD)[-1].payload, NodeLoad).draining
        assert decode_message(gateway.frames[-1].payload, Goodbye).reason == "the node is stopping"
        assert gateway.connections == 1
        assert not any("finishing" in notice for notice in node.rig.notices)


async def test_an_agent_that_drains_finishes_its_job_first(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.sockets)
        await send_job(gateway.sockets[0])
        await until(lambda: gateway.received(Opcode.HEAD))
        await node.agent.drain()
        await node.over()
        await until(lambda: gateway.received(Opcode.GOODBYE))
        ops = [frame.op for frame in gateway.frames]
        assert ops.index(Opcode.END) < ops.index(Opcode.GOODBYE)


async def test_draining_shows_the_owner_how_many_answers_it_waits_for(gateway: Gateway, tmp_path: Path) -> None:
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.sockets)
        await node.rig.fault("stall_after_tokens", after_tokens=1)
        await send_job(gateway.sockets[0])
        await until(lambda: gateway.received(Opcode.HEAD))
        draining = asyncio.create_task(node.agent.drain())
        await until(lambda: "finishing 1 answer; Ctrl-C again to stop now" in node.rig.notices)
        draining.cancel()


async def test_an_agent_that_is_stopped_in_the_middle_of_a_handshake_leaves_when_it_is_let_in(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.may_welcome.clear()
    async with running_agent(gateway, tmp_path) as node:
        await until(lambda: gateway.connections == 1)
        await node.agent.drain()
        gateway.may_welcome.set()
        await node.over()
        assert node.task.exception() is None


async def test_an_agent_that_is_stopped_while_its_gateway_is_down_ends_at_once(tmp_path: Path) -> None:
    async with running_agent(Gateway(url="http://127.0.0.1:1"), tmp_path) as node:
        await until(lambda: not node.agent._links)
        await node.agent.drain()
        await node.over()
        assert node.task.exception() is None


def test_a_timeout_is_described_in_words() -> None:
    assert "did not answer in time" in describe_link_error(TimeoutError())
    assert describe_link_error(OSError("cable pulled")) == "cable pulled"
    assert describe_link_error(ValueError()) == "ValueError"
