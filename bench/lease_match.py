"""Time of lease orders on the default network: from the command, and from PROVIDER_LOOKUP, to the certificate.

Run `make bench-leases`. Starts a network as `sparewatt up` does, with three nodes and four validators, and runs
`sparewatt lease create` once per order, one after the other; each lease is closed before the next order. Times from the
lookup are the validators' own: each record says how long after its first sight of the lookup a validator held a
certificate, and saw it accepted by the chain. Everything is on loopback.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from bench.environment import describe
from bench.figures import percentile
from bench.idle_market import NODES, READY_S, is_market_ready

from tests.integration.networks import Network, start_network
from tests.processes import wait_until

PAUSE_S_MAX = 0.5
"""Between two orders: at random, so that they meet every moment of the processes' rounds."""
COMMAND_S = 120.0
CERTIFIED, OVER = "certified", "over"


@dataclass(frozen=True, slots=True)
class MatchTimes:
    command_s: float
    """From the start of the command to its end, which is when the chain has accepted the certificate."""
    certified_s: float
    """From a validator's first sight of the lookup to its certificate: the first validator that had one."""
    accepted_s: float
    """… to the certificate accepted by the chain, as the last validator saw it."""
    attempts: int


def get(url: str, api_key: str | None = None) -> Any:
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return msgspec.json.decode(reply.read())


def command(network: Network, *words: str) -> tuple[float, Any]:
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    before = time.perf_counter()
    argv = [sys.executable, "-m", "sparewatt", *words, "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, timeout=COMMAND_S, check=False)
    took_s = time.perf_counter() - before
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout.decode()}\n{done.stderr.decode()}")
    return took_s, msgspec.json.decode(done.stdout)


def times_of(records: Sequence[Any], command_s: float, attempts: int) -> MatchTimes:
    notes = [{note["what"]: note["at_ms"] / 1000 for note in record["notes"]} for record in records]
    certified = [each[CERTIFIED] for each in notes if CERTIFIED in each]
    return MatchTimes(command_s, min(certified), max(each[OVER] for each in notes if OVER in each), attempts)


def records_of(network: Network, order_id: str, attempt: int) -> list[Any]:
    """Of all validators, once each has seen the end of the attempt."""
    validators = get(f"{network.base_url}/market/validators", network.api_key)["data"]
    found: list[Any] = []

    def are_over() -> bool:
        found[:] = [get(f"{each['url']}/v1/match/{order_id}/{attempt}/record") for each in validators]
        return all(any(note["what"] == OVER for note in record["notes"]) for record in found)

    wait_until(are_over, "a validator has not seen the end of the match")
    return found


def order(network: Network, number: int) -> MatchTimes:
    words = (
        "--image",
        "ghcr.io/example/job:1",
        "--gpus",
        "0",
        "--duration",
        "1h",
        "--yes",
        "--name",
        f"order-{number}",
    )
    command_s, created = command(network, "lease", "create", *words)
    (lease,) = created["leases"]
    attempt = lease["order"]["attempt"]
    times = times_of(records_of(network, lease["order_id"], attempt), command_s, attempt + 1)
    command(network, "lease", "close", lease["id"])
    return times


def measure(count: int, folder: Path) -> list[MatchTimes]:
    with start_network(folder, "--engine=deterministic", f"--nodes={NODES}", chain=True) as network:
        wait_until(lambda: is_market_ready(network), "the market is not ready", ceiling_s=READY_S)
        rng, found = random.Random(1), []  # noqa: S311 (repeatable on purpose)
        for number in range(count):
            time.sleep(rng.uniform(0, PAUSE_S_MAX))
            found.append(order(network, number))
        return found


def row(name: str, goal: str, seconds: Sequence[float]) -> str:
    cells = [percentile(seconds, share) for share in (0.0, 0.5, 0.95, 1.0)]
    return f"| {name} | {goal} | " + " | ".join(f"{cell:.2f} s" for cell in cells) + " |"


def report(times: Sequence[MatchTimes]) -> str:
    again = sum(each.attempts > 1 for each in times)
    lines = [
        "# Time of a lease match",
        "",
        f"{len(times)} orders, one after the other, on a network as `sparewatt up` makes it: three nodes that bid,",
        "four validators, the local chain. The command is `sparewatt lease create`, its start and its questions",
        "included; it ends when the chain has accepted the certificate. Times from PROVIDER_LOOKUP are the validators'",
        "own: to the first certificate, and until the last validator saw it accepted.",
        "",
        describe(),
        f"The machine had {os.cpu_count()} cores and a load average of {os.getloadavg()[1]:.1f} over these minutes.",
        "",
        "| from … to … | goal | least | median | p95 | longest |",
        "| --- | --- | --- | --- | --- | --- |",
        row("PROVIDER_LOOKUP to certificate", "p50 < 2.5 s, p95 < 5 s", [each.certified_s for each in times]),
        row("PROVIDER_LOOKUP to accepted by the chain", "", [each.accepted_s for each in times]),
        row("command to accepted certificate", "p50 < 4 s", [each.command_s for each in times]),
        "",
        f"Orders that needed more than one attempt: {again}.",
        "",
        "Command: `make bench-leases`.",
        "",
    ]
    return "\n".join(lines)


def write_table(description: str | None, make: Callable[[int, Path], str]) -> None:
    """Read the command line, make the table of so many orders in a folder of its own, and print it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=50, help="Orders. The network takes 60 an hour of one account.")
    parser.add_argument("--report", type=Path, help="Where to write the table.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = make(args.count, Path(folder))
    print(text)
    if args.report:
        args.report.write_text(text)


if __name__ == "__main__":
    write_table(__doc__, lambda count, folder: report(measure(count, folder)))
