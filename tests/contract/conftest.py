from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import aiohttp
import pytest

from sparewatt.node.backends.openai import OpenAIBackend
from tests.contract.servers import Kind, Server, running_server


@pytest.fixture(scope="session")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Kind], Server]]:
    """Starts a kind of server when it is first asked for; all are ended with the session."""
    folder = tmp_path_factory.mktemp("servers")
    started: dict[str, Server] = {}
    with ExitStack() as running:

        def start(kind: Kind) -> Server:
            if kind.name not in started:
                started[kind.name] = running.enter_context(running_server(kind, folder))
            return started[kind.name]

        yield start


@pytest.fixture
def server(request: pytest.FixtureRequest, start_once: Callable[[Kind], Server]) -> Server:
    """The server of the kind that the test is parametrized with."""
    kind: Kind = request.param
    return start_once(kind)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """As a node opens it: no connection is used twice, since llama.cpp closes them and a POST is not sent again."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        yield session


@pytest.fixture
def backend(server: Server, session: aiohttp.ClientSession) -> OpenAIBackend:
    return OpenAIBackend(server.url, session)
