"""A node that answers and wins a lease: its answers end elsewhere, the container runs, its record stays clean."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from tests.integration.asking import ask
from tests.integration.cascade import nodes
from tests.integration.networks import Network, start_network
from tests.integration.seams import Client, parts_of, streaming, until
from tests.integration.test_leased_container import market_is_ready, sparewatt
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MARKET_S = 90.0
ENDS_S = 60.0
TOKENS = 600
"""A quarter of a minute at the slow node, which gives way long before."""
FAST, SLOW = "node-1", "node-2"
NAME = "whole"
CPUS = "0.5"
WORD = f"way-{os.getpid()}"
"""By which this test knows its program: others may run containers on this machine."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            env = {"DOCKER_HOST": f"unix://{socket}", "SPAREWATT_ENGINE_ANSWER_TOKENS": str(2 * TOKENS)}
            folder = tmp_path_factory.mktemp("way")
            with start_network(folder, "--engine=deterministic", "--nodes=2", chain=True, env=env) as network:
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def at_node(network: Network, name: str, *words: str) -> Any:
    return sparewatt(network, "node", *words, f"--data={network.data / 'nodes' / name}")


def lease_market(network: Network, name: str) -> dict[str, Any]:
    found: dict[str, Any] = at_node(network, name, "status")["lease_market"]
    return found


def is_ready(network: Network) -> bool:
    if not market_is_ready(network):
        return False
    market = lease_market(network, SLOW)
    can_go_on = [
        model["measured"] is not None and "continue_raw" in (model["capabilities"] or ())
        for node in nodes(network).values()
        for model in node["models"]
    ]
    return bool(market["provider"] and market["containers"] and market["containers"]["limits"] and all(can_go_on))


def state_of(network: Network, name: str) -> str:
    return str(nodes(network)[name]["state"])


def record_of(network: Network, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(network, "GET", f"/v1/nodes/{nodes(network)[name]['id']}/reputation").json()
    return found


def programs() -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if WORD in (each.info["cmdline"] or ())]


def order_all_processors(network: Network) -> None:
    provider = lease_market(network, SLOW)["provider"]
    command = f"{probe_image.PROGRAM} say {WORD} wait 100000000"
    order = ("--image", probe_image.image_tag(), "--command", command, "--gpus=0", f"--cpus={CPUS}", "--memory-gb=0.1")
    sparewatt(
        network, "lease", "create", *order, "--disk-gb=0.1", f"--only={provider}", f"--name={NAME}", "--duration=1h",
        "--yes",
    )  # fmt: skip


def lease_of(network: Network) -> dict[str, Any]:
    found: dict[str, Any] = sparewatt(network, "lease", "show", NAME)["order"]["lease"]
    return found


async def _stream_and_lease(network: Network, clients: list[Client]) -> None:
    async with streaming(network, clients):
        await until(lambda: all(client.tokens or client.broke for client in clients))
        await asyncio.to_thread(at_node, network, FAST, "resume")
        await asyncio.to_thread(order_all_processors, network)


def test_answers_end_elsewhere_while_the_lease_starts_and_nobody_is_blamed(network: Network) -> None:
    wait_until(lambda: is_ready(network), "the market is not ready", ceiling_s=MARKET_S)
    at_node(network, SLOW, "leases", "offer", f"--cpus={CPUS}")
    at_node(network, FAST, "pause")
    wait_until(lambda: state_of(network, FAST) == "paused", "it is not paused")
    clients = [Client(f"Question {number}", TOKENS, model=network.model) for number in range(4)]
    asyncio.run(_stream_and_lease(network, clients))
    assert [client.fault() for client in clients] == [None] * 4
    ids = {name: node["id"] for name, node in nodes(network).items()}
    for client in clients:
        parts = parts_of(network, client)
        assert [part["node"] for part in parts] == [ids[SLOW], ids[FAST]], parts
        assert (parts[0]["outcome"], parts[0]["reason"][:7]) == ("refused", "leased:")
    wait_until(lambda: lease_of(network)["state"] == "active", "it does not run", ceiling_s=ENDS_S)
    assert len(programs()) == 1
    machine = lease_market(network, SLOW)["machine"]
    assert machine["gives_way_to"] == machine["taken"][0]["order"]
    assert state_of(network, SLOW) == "paused"
    _check_that_the_machine_is_one(network)
    sparewatt(network, "lease", "close", NAME)
    wait_until(lambda: state_of(network, SLOW) == "online", "it does not serve again", ceiling_s=ENDS_S)
    _check_that_it_answers(network)
    wait_until(lambda: record_of(network, FAST)["jobs"] >= len(clients), "the answers are not stored", ceiling_s=ENDS_S)
    assert record_of(network, SLOW)["failures"] == 0


def _check_that_the_machine_is_one(network: Network) -> None:
    """The other agent counts the lease, too, and offers what it leaves."""

    def sees_it() -> bool:
        market = lease_market(network, FAST)
        others = [each for each in market["machine"]["taken"] if not each["is_own"]]
        left = market["machine"]["leasable"]["cpu_milli"] - sum(each["cpu_milli"] for each in others)
        return len(others) == 1 and market["offer"]["cpu_milli"] == left

    wait_until(sees_it, "the other agent does not count it")


def _check_that_it_answers(network: Network) -> None:
    at_node(network, FAST, "pause")
    wait_until(lambda: state_of(network, FAST) == "paused", "it is not paused")
    body = {"model": network.model, "messages": [{"role": "user", "content": "Again?"}], "max_tokens": 5}
    wait_until(lambda: ask(network, "POST", "/v1/chat/completions", body).status == 200, "it does not answer")
