"""Time of leases from the command, and from the order's block, to a running program: phase by phase.

Run `make bench-lease-start`, as root, with podman. Starts an engine and a network as `sparewatt up` makes it, with
three nodes and four validators, and orders leases of an image that is on the machine already, one after the other; each
is closed before the next. A phase ends when this process has seen its end: the API is asked every few milliseconds, and
the program is looked for among the processes of the machine. Everything is on loopback.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench.environment import describe
from bench.idle_market import NODES, READY_S, is_market_ready
from bench.lease_match import PAUSE_S_MAX, command, get, row, write_table

from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from tests.integration.networks import Network, start_network
from tests.podman import podman_service
from tests.processes import wait_until

LOOK_S = 0.005
RUNS_S = 60.0
SMALL = ("--gpus=0", "--cpus=0.1", "--memory-gb=0.1", "--disk-gb=0.1", "--duration=1h", "--yes")


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds from the start of the command."""

    on_chain_s: float
    """The gateway has seen the order's block."""
    matched_s: float
    """The certificate is accepted."""
    running_s: float
    """The program runs."""
    active_s: float
    """Its provider's confirmation is on the chain, and pay runs."""


@contextmanager
def leasing_network(folder: Path) -> Iterator[Network]:
    try:
        with podman_service(folder / "engine") as socket:
            env = {"DOCKER_HOST": f"unix://{socket}"}
            flags = ("--engine=deterministic", f"--nodes={NODES}")
            with start_network(folder / "network", *flags, chain=True, env=env) as network:
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def is_open(network: Network) -> bool:
    """There is a table of providers, and every node has tried containers."""
    if not is_market_ready(network):
        return False
    logs = [path.read_text() for path in (network.data / "logs").glob("node-?.log")]
    return sum("Leases run in containers" in text for text in logs) == NODES


def lease_of(network: Network, name: str) -> Any:
    found = get(f"{network.base_url}/leases", network.api_key)["data"]
    return next((each for each in found if each["name"] == name), None)


def phase_of(lease: Any) -> str:
    order = lease["order"] if lease is not None else None
    if order is None:
        return "sent"
    return "on_chain" if order["lease"] is None else str(order["lease"]["state"])


def runs(word: str) -> bool:
    return any(word in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


def order(network: Network, number: int) -> StartTimes:
    name = f"start-{number}"
    program = f"{probe_image.PROGRAM} say {name} wait 100000000"
    words = ("lease", "create", "--image", probe_image.image_tag(), "--command", program, *SMALL, f"--name={name}")
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    began_s = time.perf_counter()
    seen: dict[str, float] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "sparewatt", *words, "--json"], env=env, stdout=subprocess.DEVNULL
    ) as ordering:
        while "active" not in seen or "running" not in seen:
            phase, at_s = phase_of(lease_of(network, name)), time.perf_counter() - began_s
            for reached in {"sent": (), "on_chain": ("on_chain",), "pending": ("on_chain", "pending")}.get(
                phase, ("on_chain", "pending", "active")
            ):
                seen.setdefault(reached, at_s)
            if "pending" in seen and "running" not in seen and runs(name):
                seen["running"] = time.perf_counter() - began_s
            if at_s > RUNS_S:
                raise SystemExit(f"after {RUNS_S:.0f} s the lease is {phase}")
            time.sleep(LOOK_S)
        ordering.wait(RUNS_S)
    command(network, "lease", "close", name)
    wait_until(lambda: not runs(name), "the program still runs")
    return StartTimes(seen["on_chain"], seen["pending"], seen["running"], seen["active"])


def measure(count: int, folder: Path) -> list[StartTimes]:
    (folder / "engine").mkdir()
    with leasing_network(folder) as network:
        wait_until(lambda: is_open(network), "the market is not ready", ceiling_s=READY_S)
        rng, found = random.Random(1), []  # noqa: S311 (repeatable on purpose)
        for number in range(count):
            time.sleep(rng.uniform(0, PAUSE_S_MAX))
            found.append(order(network, number))
        return found


def report(times: Sequence[StartTimes]) -> str:
    lines = [
        "# Time of a lease's start",
        "",
        f"{len(times)} leases, one after the other, on a network as `sparewatt up` makes it: three nodes with podman,",
        "four validators, the local chain. The image is on the machine. The command is `sparewatt lease create`, its",
        "start and its questions included.",
        "",
        describe(),
        f"The machine had {os.cpu_count()} cores and a load average of {os.getloadavg()[1]:.1f} over these minutes.",
        "",
        "| from … to … | goal | least | median | p95 | longest |",
        "| --- | --- | --- | --- | --- | --- |",
        row("command to the order's block", "", [each.on_chain_s for each in times]),
        row("the order's block to the match", "", [each.matched_s - each.on_chain_s for each in times]),
        row("the match to a running program", "", [each.running_s - each.matched_s for each in times]),
        row("… to its confirmation on the chain", "", [each.active_s - each.running_s for each in times]),
        row(
            "the order's block to a running program",
            "p50 < 5 s, p95 < 10 s",
            [each.running_s - each.on_chain_s for each in times],
        ),
        row("command to a running program", "p50 < 7 s", [each.running_s for each in times]),
        "",
        "Command: `make bench-lease-start`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    write_table(__doc__, lambda count, folder: report(measure(count, folder)))
