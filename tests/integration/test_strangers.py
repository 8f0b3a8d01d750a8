"""Strangers at the gateway's doors, on the real link protocol: whom they keep out, and what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.errors import LinkLost
from sparewatt.link.sockets import Socket
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import ask
from tests.integration.link_visitors import Visitor, joined, knocking, visitors
from tests.integration.networks import Network, start_network
from tests.processes import commands_of, wait_until

REJOIN_S = 10.0
KNOCKING = 400
CROWD, CROWD_MODELS, AT_ONCE = 400, 200, 50
GROWN_MB_MAX = 20.0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    flags = ("--engine=deterministic", "--nodes=1")
    with start_network(tmp_path_factory.mktemp("strangers"), *flags, server=server) as network:
        yield network


def make_token(network: Network) -> str:
    token: str = ask(network, "POST", "/v1/join-tokens", {}).json()["token"]
    return token


def crowd_of(network: Network, count: int, *, models: int, name: str) -> list[Visitor]:
    return visitors(network.root_url, count, models=models, make_token=lambda: make_token(network), name=name)


def online(network: Network) -> set[str]:
    listed = ask(network, "GET", "/v1/nodes").json()["data"]
    return {node["id"] for node in listed if node["state"] != "offline"}


async def rejoin(visitor: Visitor, times: int) -> None:
    """Raises TimeoutError if it is not back within REJOIN_S, however often it dials."""
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with asyncio.timeout(REJOIN_S):
                link = await _keep_dialling(visitor, session)
            link.abort()


async def _keep_dialling(visitor: Visitor, session: aiohttp.ClientSession) -> Socket:
    while True:
        try:
            return await visitor.join(session)
        except LinkLost:
            await asyncio.sleep(0.5)


def test_silent_sockets_keep_no_node_from_joining_or_coming_back(network: Network) -> None:
    (newcomer,) = crowd_of(network, 1, models=1, name="newcomer")
    (own,) = online(network)
    with knocking(network.root_url, KNOCKING):
        asyncio.run(rejoin(newcomer, times=5))
        assert ask(network, "GET", "/healthz").status == 200
        assert own in online(network)


def gateway_pid(network: Network) -> int:
    commands = commands_of(network.descendants())
    return next(pid for pid, command in commands.items() if " gateway run" in command)


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def visit_in_turns(crowd: list[Visitor]) -> tuple[int, set[str]]:
    """How many were let in, and what the others were told."""
    let_in, told = 0, set()
    for at in range(0, len(crowd), AT_ONCE):
        async with joined(crowd[at : at + AT_ONCE]) as links:
            let_in += sum(isinstance(link, Socket) for link in links)
            told |= {str(link) for link in links if not isinstance(link, Socket)}
    return let_in, told


def test_nodes_that_join_and_leave_with_ever_new_models_leave_no_memory_behind(network: Network) -> None:
    pid = gateway_pid(network)
    asyncio.run(visit_in_turns(crowd_of(network, 1, models=CROWD_MODELS, name="first")))
    crowd = crowd_of(network, CROWD, models=CROWD_MODELS, name="crowd")
    before_mb = resident_mb(pid)
    let_in, told = asyncio.run(visit_in_turns(crowd))
    assert let_in >= 1
    assert any("--models-per-account" in text for text in told)
    wait_until(
        lambda: resident_mb(pid) - before_mb < GROWN_MB_MAX, f"the gateway has grown by over {GROWN_MB_MAX:.0f} MB"
    )
    assert len(online(network)) == 1


def test_a_long_list_comes_in_pages_and_health_is_answered_meanwhile(network: Network) -> None:
    first = ask(network, "GET", "/v1/nodes?limit=1").json()
    assert len(first["data"]) == 1
    ids, cursor = [first["data"][0]["id"]], first["next"]
    while cursor is not None:
        page = ask(network, "GET", f"/v1/nodes?limit=1&after={cursor}").json()
        ids += [node["id"] for node in page["data"]]
        cursor = page["next"]
    assert len(ids) == len(set(ids)) > 1
    assert ask(network, "GET", "/v1/nodes?limit=201").status == 400
    assert ask(network, "GET", "/v1/nodes?after=nonsense").status == 400
