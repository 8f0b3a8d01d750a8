"""One suite for every kind of socket that a link can be on, and for both event loops that a gateway may run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import pytest
import uvloop

from sparewatt.link.sockets import Socket
from sparewatt.testing.memory_socket import socket_pair
from tests.contract.link.raw_peer import RawPeer, raw_gateway, raw_node
from tests.contract.link.servers import SERVERS, dialled

Pair = tuple[Socket, Socket]
"""The node's end and the gateway's."""

LIBRARIES = ("picows", "aiohttp")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["memory", *(f"{near}-{far}" for near in LIBRARIES for far in LIBRARIES)])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Memory, and each library at the node with each at the gateway."""
    if request.param == "memory":
        yield socket_pair()
        return
    near, far = request.param.split("-")
    async with SERVERS[far]() as server, dialled(server, near) as pair:
        yield pair


@pytest.fixture(params=[f"{library}-{end}" for library in LIBRARIES for end in ("node", "gateway")])
async def against(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Socket, RawPeer]]:
    """A socket, and a peer that writes WebSocket frames by hand."""
    library, end = request.param.split("-")
    async with AsyncExitStack() as stack:
        if end == "gateway":
            server = await stack.enter_async_context(SERVERS[library]())
            yield await stack.enter_async_context(raw_node(server))
        else:
            yield await stack.enter_async_context(raw_gateway(library))
