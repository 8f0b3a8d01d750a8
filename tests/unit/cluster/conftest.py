from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from sparewatt.cluster.peer_rpc import LOOPBACK, answering_peers, new_slots
from sparewatt.core.rng import seeded
from sparewatt.edge.server import bind
from sparewatt.gateway.membership import peer_handlers
from sparewatt.gateway.routes import endpoint_groups
from tests.unit.cluster.pair import Pair
from tests.unit.gateway.small_gateway import ListDatabase, make_services
from tests.unit.inference.nodes import a_table


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(bind(LOOPBACK, 0, shared=True))) for _ in range(2)]
        ports = tuple(socket.getsockname()[1] for socket in sockets)
        slots, database = new_slots(link_ports=(1001, 1002), peer_ports=ports, rng=seeded(1)), ListDatabase()
        both = [make_services(a_table(2), slot=slot, database=database) for slot in slots]
        for services in both:
            handlers = peer_handlers(services, endpoint_groups(services))
            stack.push_async_callback(services.peer_client.close)
            await stack.enter_async_context(answering_peers(services.slot, handlers))
        yield Pair(*both)
