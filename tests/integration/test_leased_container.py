"""A lease that runs: ordered by command, auctioned, started in a real container, adopted, closed, accounted for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import psutil
import pytest

from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from tests.integration.networks import Network, start_network
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MARKET_S = 90.0
RUNS_S = 60.0
NAME = "job"
SMALL = ("--gpus=0", "--cpus=0.1", "--memory-gb=0.1", "--disk-gb=0.1")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            folder, env = tmp_path_factory.mktemp("leased"), {"DOCKER_HOST": f"unix://{socket}"}
            with start_network(folder, "--engine=deterministic", "--nodes=1", chain=True, env=env) as network:
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def run(network: Network, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", *words, "--json"]
    return subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False)


def sparewatt(network: Network, *words: str) -> Any:
    done = run(network, *words)
    assert done.returncode == 0, f"{words}: {done.stdout.decode()}{done.stderr.decode()}"
    return msgspec.json.decode(done.stdout)


def market_is_ready(network: Network) -> bool:
    done = run(network, "market", "validators")
    snapshot = msgspec.json.decode(done.stdout).get("snapshot") if done.returncode == 0 else None
    return snapshot is not None and snapshot["count"] >= 1


def runs_containers(network: Network) -> bool:
    """By a node's own word, and by the gateway's, which hears of it a moment later."""
    folder = next((network.data / "nodes").iterdir())
    done = run(network, "node", "status", f"--data={folder}")
    if done.returncode != 0:
        return False  # it is just being started again
    found = msgspec.json.decode(done.stdout)["lease_market"]["containers"]
    quote = run(network, "lease", "create", "--image=a", *SMALL, "--dry-run")
    return bool(found and found["limits"] and quote.returncode == 0)


def programs() -> list[psutil.Process]:
    """Those that run in leases' containers here."""
    found = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"]]
    return [
        each for each in found if each.info["cmdline"][0] == probe_image.PROGRAM and "leased" in each.info["cmdline"]
    ]


def lease_state(network: Network) -> str:
    lease = sparewatt(network, "lease", "show", NAME)["order"]["lease"]
    return str(lease["state"])


def test_an_order_becomes_a_program_that_outlives_its_agent_and_ends_with_the_lease(network: Network) -> None:
    wait_until(lambda: market_is_ready(network), "the market is not ready", ceiling_s=MARKET_S)
    wait_until(lambda: runs_containers(network), "containers were not proven", ceiling_s=MARKET_S)
    command = f"{probe_image.PROGRAM} say leased wait 100000000"
    order = ("--image", probe_image.image_tag(), "--command", command, "--gpus=0", "--cpus=0.1", "--memory-gb=0.1")
    sparewatt(network, "lease", "create", *order, "--disk-gb=0.1", "--duration=1h", f"--name={NAME}", "--yes")
    wait_until(lambda: lease_state(network) == "active", "the lease does not run", ceiling_s=RUNS_S)
    (program,) = programs()
    agent = next(each for each in psutil.process_iter(["cmdline"]) if _is_agent_of(each, network))
    agent.send_signal(signal.SIGKILL)
    wait_until(lambda: runs_containers(network), "the agent did not come back", ceiling_s=MARKET_S)
    assert programs() == [program], "the program noticed nothing"
    assert lease_state(network) == "active"
    closed = sparewatt(network, "lease", "close", NAME)
    assert closed["request"]["state"] == "done"
    wait_until(lambda: programs() == [], "the container is still there", ceiling_s=RUNS_S)
    wait_until(lambda: _is_audited(network), "the books do not agree with the chain", ceiling_s=RUNS_S)
    lease = sparewatt(network, "lease", "show", NAME)["order"]
    assert (lease["lease"]["close_reason"], float(lease["charged_usd"]) > 0) == ("RENTER", True)


def _is_agent_of(process: psutil.Process, network: Network) -> bool:
    words = process.info["cmdline"] or []
    return "join" in words and any(str(network.data) in word for word in words)


def _is_audited(network: Network) -> bool:
    return run(network, "ledger", "audit").returncode == 0
