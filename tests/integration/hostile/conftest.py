"""Who is aimed at, and who is in the way all the while: every test of this folder runs beside clients that hold on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.hostile.loiterers import Stalled, Trickling, half_open, stall
from tests.integration.hostile.target import Target
from tests.integration.networks import Network, start_network
from tests.integration.people import give_credits, sign_up

STALLED = 20
HALF_OPEN = 200


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those who hold on are judged behind the tests of the next folder: else the last tests here wait for deadlines."""
    judging = [item for item in items if item.path.name == "test_loiterers.py"]
    others = [item for item in items if item not in judging]
    nexts = [at for at, item in enumerate(others, 1) if item.path.parent.name == "money"]
    if judging and nexts:
        items[:] = [*others[: nexts[-1]], *judging, *others[nexts[-1] :]]


@pytest.fixture(scope="session")
def hostile_network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """One node, with room for all who stall and for those who do not."""
    env = {"SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": "10000", "SPAREWATT_ENGINE_SLOTS": str(2 * STALLED)}
    flags = ("--engine=deterministic", "--nodes=1")
    with start_network(tmp_path_factory.mktemp("hostile"), *flags, env=env, server=server) as network:
        yield network


@pytest.fixture(scope="session")
def target(hostile_network: Network) -> Target:
    smuggler = give_credits(hostile_network, sign_up(hostile_network, "smuggler@example.org"))
    return Target(hostile_network, hostile_network.api_key.encode(), smuggler.key.encode())


@dataclass(frozen=True, slots=True)
class Crowd:
    key: bytes
    """Of the account whose streams nobody reads."""
    stalled: Stalled
    half_open: list[socket.socket]
    trickling: Trickling


@pytest.fixture(scope="session", autouse=True)
def crowd(target: Target) -> Iterator[Crowd]:
    """Opened before the first test and judged late: their deadlines pass while the others run."""
    network = target.network
    key = give_credits(network, sign_up(network, "dawdler@example.org"), usd="100").key.encode()
    with ExitStack() as stack:
        stalled = stall(target, STALLED, key=key)
        stack.callback(stalled.close)
        held = half_open(network, HALF_OPEN)
        for each in held:
            stack.callback(each.close)
        trickling = Trickling(network)
        stack.callback(trickling.close)
        trickling.start()
        yield Crowd(key, stalled, held, trickling)
