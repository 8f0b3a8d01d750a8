"""A database server and a network of real processes that test files share. Each test leaves them as it found them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.databases import running_postgres
from tests.integration.environments import NEEDED
from tests.integration.networks import Network, start_network
from tests.processes import start_process


@pytest.fixture(scope="session", autouse=True)
def _environments(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What later tests need is installed meanwhile, by a process that gets only the time that nobody else wants."""
    collected = sorted({item.path.stem for item in request.session.items} & NEEDED.keys())
    argv = [sys.executable, "-m", "tests.integration.environments", *collected]
    process = start_process(argv, output=tmp_path_factory.mktemp("environments") / "said.txt") if collected else None
    yield
    if process is not None and process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.fixture(scope="session")
def shared_network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """Two nodes on the deterministic engine; for tests that only ask."""
    env = {"SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": "10000", "SPAREWATT_GATEWAY_REQUEST_LOG": "true"}
    flags = ("--engine=deterministic", "--nodes=2")
    with start_network(tmp_path_factory.mktemp("shared"), *flags, env=env, server=server) as network:
        yield network


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """For tests that want a database of their own on it (`fresh_database`)."""
    with running_postgres(tmp_path_factory.mktemp("server")) as server:
        yield server
