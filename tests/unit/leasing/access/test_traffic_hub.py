"""A gateway process asks a node for its traffic socket, and lets nobody else in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import LinkLost, NodeUnreachable
from sparewatt.core.ids import NodeId
from sparewatt.core.rng import seeded
from sparewatt.leasing.access import traffic_hub
from sparewatt.leasing.access.traffic_hub import UNUSED_S, TrafficHub
from sparewatt.link.handshake import authenticate_to_gateway
from sparewatt.link.traffic import TrafficLink, TrafficStream
from sparewatt.protocol.link.frames import (
    Challenge,
    Hello,
    Opcode,
    ProofSignature,
    Reject,
    challenge_digest,
    decode_frames,
    decode_message,
    encode_message,
)
from sparewatt.protocol.link.traffic import PortOpen, StreamEnd, StreamOpen
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from sparewatt.testing.memory_socket import socket_pair
from tests.waiting import CEILING_S, turns, until

HOST = "gateway.example:443"
KEY, STRANGER = SigningKey.generate(rng=seeded(1)), SigningKey.generate(rng=seeded(2))
NODE = NodeId(KEY.address)
WANTED = PortOpen(order_id="0x" + "01" * 32, port=80)


@dataclass(slots=True, eq=False)
class NodeSide:
    """A node that dials when it is asked. Implements StreamAcceptor."""

    key: SigningKey = KEY
    answers: list[StreamEnd | None] = field(default_factory=list)
    """To the next streams: an end, or None for opened; then always opened."""
    asked: int = 0
    is_linked: bool = True
    hub: TrafficHub | None = None
    links: list[TrafficLink] = field(default_factory=list)
    streams: list[TrafficStream] = field(default_factory=list)
    _dialling: set[asyncio.Task[None]] = field(default_factory=set)

    def ask(self, node_id: NodeId) -> bool:
        assert node_id == NODE
        if self.is_linked:
            self.asked += 1
            task = asyncio.get_running_loop().create_task(self.dial())
            self._dialling.add(task)
            task.add_done_callback(self._dialling.discard)
        return self.is_linked

    async def dial(self) -> None:
        assert self.hub is not None
        near, far = socket_pair()
        serving = asyncio.create_task(self.hub.serve(far))
        try:
            await authenticate_to_gateway(
                near, key=self.key, host=HOST, token=None, specs=None, agent_version="0.1.0", rng=seeded(20)
            )
            link = TrafficLink(acceptor=self)
            link.start(near)
            self.links.append(link)
        finally:
            await serving

    def accept(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        assert wanted == WANTED
        self.streams.append(stream)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            stream.opened()
        else:
            stream.finish(answer)

    def drop(self, stream: TrafficStream) -> None:
        """Tests look at the stream itself."""


def hub_of(node: NodeSide, clock: SystemClock | ManualClock | None = None) -> TrafficHub:
    node.hub = TrafficHub(ask=node.ask, hosts={HOST}, clock=clock or SystemClock(), rng=seeded(9))
    return node.hub


async def test_a_socket_is_asked_for_once_and_used_again() -> None:
    node = NodeSide()
    hub = hub_of(node)
    first, second = await hub.open(NODE, WANTED), await hub.open(NODE, WANTED)
    assert first.is_opened
    assert second.is_opened
    assert node.asked == 1
    assert first is not second


async def test_many_at_once_share_one_socket() -> None:
    node = NodeSide()
    hub = hub_of(node)
    opened = await asyncio.gather(*(hub.open(NODE, WANTED) for _ in range(20)))
    assert all(stream.is_opened for stream in opened)
    assert len(hub._links) == 1
    assert node.asked == 1, "a second request would make the node give up its dial"
    assert not hub._ask_at_s


async def test_a_node_that_comes_back_is_waited_for() -> None:
    node = NodeSide(is_linked=False)
    hub = hub_of(node)
    opening = asyncio.create_task(hub.open(NODE, WANTED))
    await turns(50)
    assert not opening.done()
    node.is_linked = True
    assert (await asyncio.wait_for(opening, CEILING_S)).is_opened


async def test_a_node_that_stays_away_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_hub, "CONNECT_S", 0.05)
    hub = hub_of(NodeSide(is_linked=False))
    with pytest.raises(NodeUnreachable):
        await hub.open(NODE, WANTED)
    assert not hub._wanted


async def test_a_socket_that_dies_is_replaced_by_a_new_one() -> None:
    node = NodeSide()
    hub = hub_of(node)
    stream = await hub.open(NODE, WANTED)
    node.links[0].close()
    await until(lambda: stream.end is not None)
    assert (await hub.open(NODE, WANTED)).is_opened
    assert node.asked == 2


async def test_an_agent_that_starts_anew_may_need_a_moment_to_know_its_leases() -> None:
    node = NodeSide(answers=[StreamEnd(code="unknown_lease"), StreamEnd(code="unknown_lease"), None])
    stream = await hub_of(node).open(NODE, WANTED)
    assert stream.is_opened
    assert len(node.streams) == 3


async def test_what_a_node_refuses_is_passed_on_at_once() -> None:
    end = StreamEnd(code="unknown_port", message="the order's ports are: 80")
    stream = await hub_of(NodeSide(answers=[end])).open(NODE, WANTED)
    assert stream.end == end


async def test_a_socket_that_was_not_asked_for_is_sent_away() -> None:
    node = NodeSide()
    hub_of(node)
    with pytest.raises(LinkLost, match="did not ask"):
        await node.dial()


async def test_a_stranger_is_sent_away_also_while_a_node_is_waited_for() -> None:
    node, stranger = NodeSide(is_linked=False), NodeSide(key=STRANGER)
    hub = stranger.hub = hub_of(node)
    opening = asyncio.create_task(hub.open(NODE, WANTED))
    await turns()
    with pytest.raises(LinkLost, match="did not ask"):
        await stranger.dial()
    opening.cancel()


async def test_who_claims_to_be_the_node_must_have_its_key() -> None:
    node = NodeSide(is_linked=False)
    hub = hub_of(node)
    opening = asyncio.create_task(hub.open(NODE, WANTED))
    await turns()
    near, far = socket_pair()
    serving = asyncio.create_task(hub.serve(far))
    hello = Hello(node_id=KEY.address, nonce="0f" * 32, host=HOST, agent_version="0.1.0")
    near.send(encode_message(Opcode.HELLO, hello))
    challenge = decode_message(decode_frames(await near.receive())[0].payload, Challenge)
    digest = challenge_digest(host=HOST, node_id=NODE, gateway_nonce=challenge.nonce, node_nonce=hello.nonce)
    near.send(encode_message(Opcode.PROOF, ProofSignature(STRANGER.sign(digest).hex())))
    (answer,) = decode_frames(await near.receive())
    assert (answer.op, decode_message(answer.payload, Reject).reason) == (Opcode.REJECT, "bad_signature")
    await serving
    assert not hub._links
    opening.cancel()


async def test_the_node_signs_the_host_that_it_dialled() -> None:
    node = NodeSide()
    hub = hub_of(node)
    hub.hosts = {"another.example:443"}
    node.is_linked = False
    opening = asyncio.create_task(hub.open(NODE, WANTED))
    await turns()
    with pytest.raises(LinkLost, match="is not"):
        await node.dial()
    opening.cancel()


async def test_a_socket_goes_with_the_nodes_link() -> None:
    node = NodeSide()
    hub = hub_of(node)
    stream = await hub.open(NODE, WANTED)
    hub.drop(NODE)
    assert stream.end == StreamEnd(code="lost")
    assert not hub._links


async def test_a_socket_without_streams_is_closed_and_one_with_streams_is_not() -> None:
    node, clock = NodeSide(), ManualClock()
    hub = hub_of(node, clock)
    opening = asyncio.create_task(hub.open(NODE, WANTED))
    async with asyncio.timeout(CEILING_S):
        while not opening.done():
            await turns()
            clock.advance(0.1)
    stream = opening.result()
    for _ in range(5):
        clock.advance(UNUSED_S)
    assert hub._links
    stream.cancel()
    clock.advance(UNUSED_S)
    clock.advance(UNUSED_S)
    assert not hub._links
    await until(node.links[0].lost.done)
