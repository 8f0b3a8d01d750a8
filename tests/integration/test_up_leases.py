"""`sparewatt up` registers its nodes as providers behind the inference path, once, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil_binary import find_anvil
from tests.integration.asking import ask, stream_chat
from tests.integration.networks import Network, start_network
from tests.integration.test_up_chain import child_pid, outbox, ready_of
from tests.processes import wait_until

NODES = 2
FLAGS = ("--engine=deterministic", f"--nodes={NODES}", "--validators=0")
REGISTERED_S = 60.0


@pytest.fixture(autouse=True)
def _anvil_is_there() -> None:
    try:
        asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")


def providers(network: Network) -> list[dict[str, Any]]:
    """Of the account that owns the local nodes; none while the gateway is away."""
    try:
        reply = ask(network, "GET", "/v1/providers", key=(network.data / "nodes.key").read_text().strip())
    except (OSError, http.client.HTTPException):
        return []
    return sorted(reply.json()["data"], key=lambda provider: provider["id"]) if reply.status == 200 else []


def identities(network: Network) -> list[tuple[str, str, str]]:
    return [(each["id"], each["node"], each["bond_usd"]) for each in providers(network)]


def are_bonded(network: Network) -> bool:
    found = providers(network)
    return len(found) == NODES and all(each["status"] == "active" and each["bond_usd"] == "10" for each in found)


def test_the_nodes_of_a_network_are_separate_providers_and_stay_so(tmp_path: Path) -> None:
    with start_network(tmp_path, *FLAGS, chain=True) as network:
        assert stream_chat(network, "nothing waits for the chain").done
        wait_until(lambda: ready_of(network)["chain_url"] is not None, "ready.json names no chain")
        os.kill(child_pid(network, "gateway\0run"), signal.SIGKILL)  # in the middle of it
        wait_until(lambda: are_bonded(network), "they are not registered and bonded", ceiling_s=REGISTERED_S)
        first = providers(network)
        assert len({each["node"] for each in first}) == len({each["id"] for each in first}) == NODES
        wait_until(lambda: "as providers of leases" in network.output.read_text(), "it is not said")
        wait_until(lambda: set(outbox(network)) == {"final"}, "not everything is final")
        audit = ask(network, "GET", "/v1/ledger/audit").json()
        assert audit["in_order"], audit
    with start_network(tmp_path, *FLAGS, chain=True) as again:
        wait_until(
            lambda: "as providers of leases" in again.output.read_text(), "it is not said", ceiling_s=REGISTERED_S
        )
        assert identities(again) == [(each["id"], each["node"], "10") for each in first]


def test_without_a_chain_nothing_is_registered_and_the_reason_is_said(shared_network: Network) -> None:
    key = (shared_network.data / "nodes.key").read_text().strip()
    listed = ask(shared_network, "GET", "/v1/providers", key=key)
    assert (listed.status, listed.error()["code"]) == (409, "no_chain"), "an empty list would ask to register"
    (node, *_) = ask(shared_network, "GET", "/v1/nodes").json()["data"]
    reply = ask(shared_network, "POST", "/v1/providers", {"node": node["id"]}, key=key)
    assert (reply.status, reply.error()["code"]) == (409, "no_chain")
    assert "providers of leases" not in shared_network.output.read_text()
