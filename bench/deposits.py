"""Time of a first deposit on the local chain: from the API call to credits that can be spent.

Run `make bench-deposits`. Starts a network with a local chain, signs up new accounts, and lets each make its first
deposit, one after the other with pauses, then several at the same moment. A deposit is a faucet call, a permit and the
deposit itself, mined, indexed, final at the local depth and posted to the ledger. Everything is on loopback.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figures import percentile

from sparewatt.localnet.chain import LOCAL_DEPTH, LOCAL_SENDERS
from tests.integration.networks import Network, start_network
from tests.integration.people import Person, send, sign_up
from tests.processes import wait_until

GOAL_S = 2.0
PAUSE_S_MAX = 1.5
"""Between two deposits: at random, so that they meet every moment of the process's rounds and of a block's second."""


def people_of(network: Network, count: int) -> list[Person]:
    return [sign_up(network, f"person{number}@example.org") for number in range(count)]


def paid_nano(network: Network, person: Person) -> int:
    reply = send(network, "GET", "/v1/credits", headers={"authorization": f"Bearer {person.key}"})
    return int(reply.json()["data"]["paid_nano"])


def deposit(network: Network, person: Person) -> float:
    """Seconds from the call until the credits are there. The reply comes when they are; that is checked."""
    before, body = time.perf_counter(), {"adapter": "chain", "usd": "1"}
    headers = {"authorization": f"Bearer {person.key}"}
    reply = send(network, "POST", "/v1/credits/deposit", body, headers)
    if reply.status != 201 or paid_nano(network, person) != 10**9:
        raise SystemExit(f"a deposit failed: {reply.status} {reply.body!r}")
    return time.perf_counter() - before


def measure(count: int, at_once: int, folder: Path) -> tuple[list[float], list[float]]:
    flags = ("--engine=deterministic", "--nodes=1")
    env = {"SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": str(count + at_once + 1)}
    with start_network(folder, *flags, chain=True, env=env) as network:
        wait_until(lambda: "The chain is up" in network.output.read_text(), "the chain is not up")
        rng = random.Random(1)  # noqa: S311 (repeatable on purpose)
        alone = []
        for person in people_of(network, count):
            time.sleep(rng.uniform(0, PAUSE_S_MAX))
            alone.append(deposit(network, person))
        together = [sign_up(network, f"together{number}@example.org") for number in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            return alone, list(pool.map(lambda person: deposit(network, person), together))


def row(name: str, seconds: Sequence[float]) -> str:
    cells = [percentile(seconds, share) for share in (0.0, 0.5, 0.9, 0.99)]
    share = sum(each <= GOAL_S for each in seconds) / len(seconds)
    return f"| {name} | {len(seconds)} | " + " | ".join(f"{cell:.2f} s" for cell in cells) + f" | {share:.0%} |"


def report(alone: Sequence[float], together: Sequence[float]) -> str:
    lines = [
        "# A first deposit",
        "",
        "From `POST /v1/credits/deposit` with the chain's adapter to credits that can be spent, on the local chain:",
        "the faucet, a permit and the deposit are sent, mined, indexed, final and posted. Each account makes its first",
        f"one. The local chain counts {LOCAL_DEPTH} blocks as final once they are saved; {LOCAL_SENDERS} keys relay",
        "beside the operator's.",
        "On any other chain the wait is that chain's block time times `depth`.",
        "",
        f"The machine had {os.cpu_count()} cores and a load average of {os.getloadavg()[1]:.0f} over these minutes.",
        "",
        "| deposits | number | least | median | p90 | p99 | within 2 s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        row("one after the other", alone),
        row("at the same moment", together),
        "",
        "Command: `make bench-deposits`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="Deposits one after the other.")
    parser.add_argument("--at-once", type=int, default=10, help="Deposits at the same moment.")
    parser.add_argument("--report", type=Path, help="Where to write the table.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = report(*measure(args.count, args.at_once, Path(folder)))
    print(text)
    if args.report:
        args.report.write_text(text)


if __name__ == "__main__":
    main()
