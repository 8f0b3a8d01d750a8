"""A database server and a network of real processes that test files share. Each test leaves them as it found them.

`make integration` has two workers, since most tests wait more than they work. A file is one worker's, so that what its
tests share is started once; what files share may be started by both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparewatt.supervisor.postgres import EmbeddedPostgres
from tests.integration.databases import running_postgres
from tests.integration.networks import Network, start_network

LONGEST = ("test_up.py", "test_up_chain.py", "test_conformance.py", "test_nodes.py", "test_home.py")
"""These begin first, so that at the end no worker waits long for the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def shared_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Three nodes on the deterministic engine; for tests that only ask."""
    env = {"SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": "10000", "SPAREWATT_GATEWAY_REQUEST_LOG": "true"}
    with start_network(tmp_path_factory.mktemp("shared"), "--engine=deterministic", env=env) as network:
        yield network


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """For tests that want a database of their own on it (`fresh_database`)."""
    with running_postgres(tmp_path_factory.mktemp("server")) as server:
        yield server
