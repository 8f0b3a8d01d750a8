"""Who is aimed at, and who is in the way all the while."""

from __future__ import annotations

import pytest

from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.integration.people import give_credits, sign_up


@pytest.fixture(scope="session")
def target(shared_network: Network) -> Target:
    smuggler = give_credits(shared_network, sign_up(shared_network, "smuggler@example.org"))
    return Target(shared_network, shared_network.api_key.encode(), smuggler.key.encode())
