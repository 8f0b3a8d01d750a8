"""A lease outlives its agent and its provider: adopted by one that returns, taken over by a stand-in, run once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.leasing.orders.terms import LOCAL_TIMES
from sparewatt.localnet.bootstrap import LOCAL_NODES_ACCOUNT
from sparewatt.machine.data_dir import DataDir
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from sparewatt.node.owner.control_socket import NodeNotRunning
from sparewatt.node.owner.control_socket import ask as ask_agent
from tests.integration.asking import ask
from tests.integration.networks import Network, start_network
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MARKET_S = 90.0
RUNS_S = 60.0
TAKEN_OVER_S = 15.0
"""From the end of the silence that validators wait for, to a stand-in's running container."""
NAME = "steady"


@dataclass(frozen=True)
class Machine:
    network: Network
    socket: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        env = os.environ | {"SPAREWATT_BASE_URL": self.network.base_url, "SPAREWATT_API_KEY": self.network.api_key}
        argv = [sys.executable, "-m", "sparewatt", *words, "--json"]
        return subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False)

    def sparewatt(self, *words: str) -> Any:
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.stdout.decode()}{done.stderr.decode()}"
        return msgspec.json.decode(done.stdout)

    def podman(self, *words: str) -> str:
        argv = ["podman", "--url", f"unix://{self.socket}", *words]
        return subprocess.run(argv, capture_output=True, timeout=60, check=True, text=True).stdout

    def containers(self) -> dict[str, str]:
        """Of leases: their programs' process, by container."""
        lines = self.podman("ps", "--format", "{{.ID}} {{.Pid}} {{.Names}}").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines if "sparewatt-lease" in line}

    def folders(self) -> list[Path]:
        return sorted((self.network.data / "nodes").iterdir())

    def market_of(self, folder: Path) -> dict[str, Any] | None:
        """What the agent of this folder says of leases; None while there is none."""
        try:
            status = ask_agent(folder, {"do": "status"})["status"]
        except NodeNotRunning:  # it is just being started again
            return None
        return status["lease_market"] if status["state"] == "online" else None

    def is_able(self, folder: Path) -> bool:
        market = self.market_of(folder)
        return bool(market and market["provider"] and market["containers"] and market["containers"]["limits"])

    def folder_of(self, provider: str) -> Path:
        return next(each for each in self.folders() if (self.market_of(each) or {}).get("provider") == provider)

    def kill_agent(self, folder: Path) -> None:
        wanted = {"join", f"--data={folder}"}
        (agent,) = [each for each in psutil.process_iter(["cmdline"]) if wanted <= set(each.info["cmdline"] or ())]
        agent.send_signal(signal.SIGKILL)

    def lease(self) -> dict[str, Any]:
        (found,) = [each for each in ask(self.network, "GET", "/v1/leases").json()["data"] if each["name"] == NAME]
        return dict(found)

    def bond_nano(self, provider: str) -> int:
        found = self.sparewatt("providers", f"--account={LOCAL_NODES_ACCOUNT}")["data"]
        return int(next(each["bond_nano"] for each in found if each["id"] == provider))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            folder, env = tmp_path_factory.mktemp("failover"), {"DOCKER_HOST": f"unix://{socket}"}
            with start_network(folder, "--engine=deterministic", "--nodes=3", chain=True, env=env) as network:
                yield Machine(network, socket)
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def placed(machine: Machine) -> dict[str, Any]:
    lease: dict[str, Any] = machine.lease()["order"]["lease"]
    return lease


def is_running(machine: Machine, *, term: int) -> bool:
    lease = placed(machine)
    return (lease["state"], lease["term"]) == ("active", term)


def start_lease(machine: Machine) -> None:
    wait_until(lambda: all(map(machine.is_able, machine.folders())), "containers were not proven", ceiling_s=MARKET_S)
    wait_until(lambda: has_table(machine), "the market is not ready", ceiling_s=MARKET_S)
    command = f"{probe_image.PROGRAM} say leased wait 100000000"
    order = ("--image", probe_image.image_tag(), "--command", command, "--gpus=0", "--cpus=0.1", "--memory-gb=0.1")
    machine.sparewatt("lease", "create", *order, "--disk-gb=0.1", "--duration=1h", f"--name={NAME}", "--yes")
    wait_until(lambda: is_running(machine, term=1), "the lease does not run", ceiling_s=RUNS_S)


def has_table(machine: Machine) -> bool:
    found = ask(machine.network, "GET", "/v1/market/validators")
    snapshot = found.json().get("snapshot") if found.status == 200 else None
    return snapshot is not None and snapshot["count"] >= 3


def held(folder: Path) -> DataDir:
    """No agent starts there while it is open."""
    found: list[DataDir] = []

    def is_held() -> bool:
        try:
            found.append(DataDir(folder))
        except StartupError:
            return False
        return True

    wait_until(is_held, "its folder is in use")
    return found[0]


def test_a_lease_outlives_its_agent_and_its_provider(machine: Machine) -> None:
    start_lease(machine)
    first = placed(machine)["provider"]
    folder, before = machine.folder_of(first), machine.containers()
    assert len(before) == 1

    # the agent alone: adopted, and nobody noticed
    machine.kill_agent(folder)
    wait_until(lambda: machine.is_able(folder), "the agent did not come back", ceiling_s=MARKET_S)
    assert machine.containers() == before
    assert is_running(machine, term=1)

    # the agent and what it ran: a stand-in has it, at the former provider's cost
    deposit, bond = float(machine.lease()["order"]["deposit_usd"]), machine.bond_nano(first)
    order_id = machine.lease()["order_id"]
    machine.kill_agent(folder)
    with held(folder):
        gone_s = time.monotonic()
        machine.podman("rm", "--force", "--time", "0", *before)
        wait_until(lambda: is_running(machine, term=2), "nobody took it over", ceiling_s=RUNS_S)
        took_s = time.monotonic() - gone_s
        taken = machine.lease()
        lease, running = taken["order"]["lease"], machine.containers()
        assert (taken["order_id"], lease["hand_over_reason"], len(running)) == (order_id, "DOWN", 1)
        assert lease["provider"] != first
        assert took_s < LOCAL_TIMES.down_s + TAKEN_OVER_S
        assert float(taken["order"]["deposit_usd"]) > deposit - float(taken["order"]["charged_usd"])
        assert machine.bond_nano(first) < bond

    # the former provider comes back
    wait_until(lambda: machine.is_able(folder), "the agent did not come back", ceiling_s=MARKET_S)
    wait_until(lambda: not list((folder / "leases" / "placed").iterdir()), "it keeps what is not its own any more")
    assert machine.containers() == running
    assert is_running(machine, term=2)

    # the books
    assert machine.sparewatt("lease", "close", NAME)["request"]["state"] == "done"
    wait_until(lambda: machine.containers() == {}, "the container is still there", ceiling_s=RUNS_S)
    wait_until(lambda: machine.run("ledger", "audit").returncode == 0, "the books do not agree", ceiling_s=RUNS_S)
