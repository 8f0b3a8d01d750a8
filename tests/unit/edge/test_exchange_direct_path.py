"""The direct path of a stream's tokens, from a node's link to a transport that the test owns."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from sparewatt.edge.connection import Connection
from sparewatt.edge.connection_registry import ConnectionRegistry
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.routes import inference_endpoints, refusals
from sparewatt.inference.dispatch.buffered_sink import KEEP_ALIVE
from sparewatt.link.gateway_end import LINK_CREDIT_PARTS
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import USER, make_services
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import BODY, DONE, FINISH, ROLE, ScriptedNode, text_event

STREAM = BODY[:-1] + b',"stream":true}'
HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {USER}\r\n"
REQUEST = (HEAD + f"Content-Type: application/json\r\nContent-Length: {len(STREAM)}\r\n\r\n").encode() + STREAM


class Transport:
    """Remembers every write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_reading(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class Open:
    """A stream of which some alike tokens have come, the last straight; what was written before is forgotten."""

    def __init__(self) -> None:
        services = make_services()
        assert isinstance(services.clock, ManualClock)
        self.clock = services.clock
        services.table.connect(node_id(1), some_specs(a_model()), now_s=NOW_S)
        self.node = ScriptedNode(1, services.clock, services.table)
        self.node.link.credit_parts = LINK_CREDIT_PARTS
        services.links.links[self.node.id] = self.node.link
        loop = asyncio.get_running_loop()
        registry = ConnectionRegistry(
            cast(Any, None),
            settings=services.settings.edge,
            inference=inference_endpoints(services),
            links=services.links,
            refusals=refusals(services),
            loop=loop,
        )
        self.connection = Connection(registry, loop)
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.Transport, self.transport))
        self.connection.data_received(REQUEST)
        self.node.begin(ROLE, text_event("a"), text_event("b"), text_event("c"))
        self.transport.writes.clear()

    def say(self, *texts: str) -> None:
        self.clock.advance(0.01)
        self.node.data(*map(text_event, texts))

    @property
    def wire(self) -> bytes:
        return b"".join(self.transport.writes)


async def test_all_data_for_a_client_of_one_tick_is_written_at_once() -> None:
    stream = Open()
    stream.say("d")
    stream.say("e", "f")
    assert stream.transport.writes == []
    await asyncio.sleep(0)
    assert len(stream.transport.writes) == 1
    pieces = [text_event(text) for text in "cdef"]
    assert stream.wire == b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


async def test_the_end_of_an_answer_comes_after_buffered_data() -> None:
    stream = Open()
    stream.say("d")
    stream.node.data(FINISH, DONE)
    stream.node.end()
    await asyncio.sleep(0)
    assert stream.wire.index(text_event("d")) < stream.wire.index(FINISH) < stream.wire.index(DONE)
    assert stream.wire.endswith(b"0\r\n\r\n")


async def test_nothing_is_written_to_a_client_that_left_in_the_same_tick() -> None:
    stream = Open()
    stream.say("d")
    stream.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert stream.wire == b""
    assert stream.node.cancelled == [1]


async def test_a_node_gets_no_credit_for_what_a_stuck_client_was_sent() -> None:
    stream = Open()
    stream.connection.pause_writing()
    half = stream.node.opened[-1].window_bytes // 2
    stream.say("x" * half)
    stream.say("y")
    await asyncio.sleep(0)
    assert stream.node.credit_bytes == 0
    stream.connection.resume_writing()
    assert stream.node.credit_bytes >= half
    stream.say("z" * half)
    assert stream.node.credit_bytes >= 2 * half, "what a client takes that keeps up is given back at once"


async def test_a_stream_on_the_direct_path_is_not_silent() -> None:
    stream = Open()
    timeouts = ClientTimeouts(keep_alive_s=10.0)
    now_s = asyncio.get_running_loop().time()
    for later_s in (6, 12, 18):
        stream.say("d")
        stream.connection.check_timeouts(now_s + later_s, timeouts)
    assert KEEP_ALIVE not in stream.wire
    stream.connection.check_timeouts(now_s + 30, timeouts)
    await asyncio.sleep(0)
    assert stream.wire.count(KEEP_ALIVE) == 1
    assert stream.wire.index(text_event("d")) < stream.wire.index(KEEP_ALIVE)
