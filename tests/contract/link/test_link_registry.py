"""Links behind an edge that gives connections away: nodes join, work and leave on picows, with no task each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import aiohttp
import pytest

from sparewatt.core.errors import JoinRefused, LinkLost
from sparewatt.core.rng import seeded
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway
from sparewatt.link.node_end import GatewayLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.link.websocket_library import WebSocketLibrary
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.contract.link.servers import Server, picows_server
from tests.unit.inference.fleet.test_link_registry import HOME, HOST, Registry
from tests.unit.link.ends import Carrier, Runner, Taker, echo, job_of
from tests.unit.protocol.reports import SPECS
from tests.waiting import CEILING_S, until

LIBRARIES = pytest.mark.parametrize("library", ["picows", "aiohttp"])


async def join(server: Server, session: aiohttp.ClientSession, library: WebSocketLibrary, *, seed: int = 1) -> Socket:
    socket = await dial(server.url, session=session, library=library)
    key = SigningKey.generate(rng=seeded(seed))
    await authenticate_to_gateway(socket, key=key, host=HOST, token="t", specs=SPECS, agent_version="1", rng=seeded(3))
    return socket


@LIBRARIES
async def test_a_node_joins_works_and_leaves(library: WebSocketLibrary) -> None:
    registry, runner, queue = Registry(), Runner(echo), SendQueue()
    async with picows_server() as server, aiohttp.ClientSession() as session:
        server.give_to = partial(registry.adopt, address=HOME)
        socket = await join(server, session, library)
        Carrier(GatewayLink(send_queue=queue, runner=runner, clock=ManualClock()).receive, queue, []).start(socket)
        await until(lambda: registry.links)
        assert not registry._visits
        taker, body = Taker(), bytes(700_000)
        (link,) = registry.links.values()
        taker.stream = link.open(job_of(body), body, taker)
        await until(lambda: taker.over)
        assert (taker.data, taker.fails) == (body, [])
        socket.close()
        await until(lambda: not registry.links)
        await runner.close()
        await socket.wait_closed()


@LIBRARIES
async def test_a_node_that_is_refused_is_told_why(library: WebSocketLibrary) -> None:
    registry = Registry()
    registry.tokens.no = JoinRefused("This join token has been used.", reason="token_used")
    async with picows_server() as server, aiohttp.ClientSession() as session, asyncio.timeout(CEILING_S):
        server.give_to = partial(registry.adopt, address=HOME)
        with pytest.raises(JoinRefused, match="has been used"):
            await join(server, session, library)
        await until(lambda: not registry._visits)


@LIBRARIES
async def test_a_registry_that_closes_lets_its_nodes_go(library: WebSocketLibrary) -> None:
    registry = Registry()
    async with picows_server() as server, aiohttp.ClientSession() as session, asyncio.timeout(CEILING_S):
        server.give_to = partial(registry.adopt, address=HOME)
        socket = await join(server, session, library)
        await until(lambda: registry.links)
        leaving = asyncio.create_task(registry.close())
        with suppress(LinkLost):
            while True:
                await socket.receive()
        await leaving
        await socket.wait_closed()
        assert not registry.links
