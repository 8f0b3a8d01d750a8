"""A whole gateway on a socket of the test's own, as its process serves it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sparewatt.core.rng import seeded
from sparewatt.edge.connection_registry import ConnectionRegistry, Refusals
from sparewatt.edge.server import listen, serving
from sparewatt.gateway.routes import inference_endpoints, refusals
from sparewatt.gateway.services import Services
from tests.unit.gateway.small_gateway import app_of


def serving_on(listener: socket.socket, services: Services) -> AbstractAsyncContextManager[ConnectionRegistry]:
    return serving(
        app_of(services),
        listener,
        settings=services.settings.edge,
        inference=inference_endpoints(services),
        links=services.links,
        refusals=refusals(services),
    )


@asynccontextmanager
async def served(services: Services) -> AsyncIterator[int]:
    """The port."""
    listener = listen("127.0.0.1", 0)
    async with serving_on(listener, services):
        yield listener.getsockname()[1]


def plain_refusals() -> Refusals:
    """For a server that is no gateway: nothing is counted or logged."""
    return Refusals(errors=None, is_logged=False, rng=seeded(1))
