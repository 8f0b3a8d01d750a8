"""Networks of real processes that several test files share. Each test leaves them as it found them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.networks import Network, start_network


@pytest.fixture(scope="session")
def deployed_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Three nodes on the deterministic engine; for tests that only ask."""
    with start_network(tmp_path_factory.mktemp("shared"), "--engine=deterministic") as network:
        yield network
