"""What four idle validators cost, and how soon the market is there after a start.

Run `make bench-validators`. Starts networks as `sparewatt up` does, with and without a chain in turn, and takes the
time until each answers and until the first snapshot is on the chain. Then the last one is left alone: processor time
and memory of each validator are the kernel's own figures, so what else the machine does matters little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.environment import describe
from bench.idle_market import NODES, READY_S, is_market_ready, processor_s

from tests.integration.networks import Network, start_network
from tests.processes import wait_until

FLAGS = ("--engine=deterministic", f"--nodes={NODES}")
VALIDATOR = "validator\0run"
SETTLE_S = 60.0
"""After the first snapshot: the uptimes of the nodes make one or two more."""
MEMORY_GOAL_MB, PROCESSOR_GOAL, READY_GOAL_S = 60, 0.01, 15
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Start:
    answers_s: float
    """From the command to a network that answers."""
    market_s: float | None = None
    """From then to the first snapshot with all nodes in it; None without a chain."""
    processor_s: float | None = None
    """Of all processes, from the command to the snapshot."""


@dataclass(frozen=True, slots=True)
class Idle:
    """One validator."""

    seconds: float
    processor_s: float
    resident_mb: float
    shared_out_mb: float
    """PSS: what it shares with other processes counted in part."""
    nice: int


def validators_of(network: Network) -> list[int]:
    return sorted(pid for pid, _ in network.descendants() if VALIDATOR in _command(pid))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def memory_mb(pid: int, kind: str) -> float:
    """`Rss` or `Pss`."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (kb,) = [line.split()[1] for line in text.splitlines() if line.startswith(f"{kind}:")]
    return int(kb) * 1024 / MB


def start(folder: Path, *, idle_s: float = 0.0, chain: bool = True) -> tuple[Start, list[Idle]]:
    began_s = time.monotonic()
    with start_network(folder, *FLAGS, chain=chain, ready_s=READY_S) as network:
        answers_s = time.monotonic() - began_s
        if not chain:
            return Start(answers_s), []
        wait_until(lambda: is_market_ready(network), "the market is not ready", ceiling_s=READY_S)
        market_s = time.monotonic() - began_s - answers_s
        spent = processor_s([network.pid, *(pid for pid, _ in network.descendants())])
        return Start(answers_s, market_s, spent), watch(network, idle_s) if idle_s else []


def watch(network: Network, seconds: float) -> list[Idle]:
    time.sleep(SETTLE_S)
    pids = validators_of(network)
    began_s, before = time.monotonic(), {pid: processor_s([pid]) for pid in pids}
    time.sleep(seconds)
    passed_s = time.monotonic() - began_s
    return [
        Idle(
            passed_s,
            processor_s([pid]) - before[pid],
            memory_mb(pid, "Rss"),
            memory_mb(pid, "Pss"),
            os.getpriority(os.PRIO_PROCESS, pid),
        )
        for pid in pids
    ]


def measure(pairs: int, idle_s: float, folder: Path) -> tuple[list[Start], list[Start], list[Idle]]:
    """Starts with a market, starts without, and the validators of the last one."""
    with_market, without, idle = [], [], list[Idle]()
    for number in range(pairs):
        without.append(start(folder / f"plain-{number}", chain=False)[0])
        is_last = number + 1 == pairs
        started, idle = start(folder / f"market-{number}", idle_s=idle_s if is_last else 0.0)
        with_market.append(started)
    return with_market, without, idle


def report(with_market: Sequence[Start], without: Sequence[Start], idle: Sequence[Idle]) -> str:
    middle = statistics.median
    market_s = middle(each.market_s for each in with_market if each.market_s is not None)
    spent_s = middle(each.processor_s for each in with_market if each.processor_s is not None)
    lines = [
        "# What validators cost",
        "",
        f"Networks as `sparewatt up` makes them, {NODES} nodes and four validators, started {len(with_market)} times",
        "with a chain and as often with `--no-chain`, in turn. Medians.",
        "",
        describe(),
        f"The machine had {os.cpu_count()} cores and a load average of {os.getloadavg()[1]:.1f} over these minutes.",
        "",
        "| start | goal | measured |",
        "| --- | --- | --- |",
        f"| the command to the first answer, `--no-chain` | | {middle(each.answers_s for each in without):.1f} s |",
        f"| the same with chain and market | as fast | {middle(each.answers_s for each in with_market):.1f} s |",
        f"| from then to the first snapshot on the chain | ≤ {READY_GOAL_S} s | {market_s:.1f} s |",
        f"| processor time of all processes from the command to the snapshot | | {spent_s:.1f} s |",
        "",
        f"Then nothing happened for {idle[0].seconds:.0f} s but heartbeats of the nodes:",
        "",
        "| validator | of a core | goal | resident | PSS | goal | nice |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {number} | {each.processor_s / each.seconds:.2%} | {PROCESSOR_GOAL:.0%} | {each.resident_mb:.0f} MB | "
            f"{each.shared_out_mb:.0f} MB | {MEMORY_GOAL_MB} MB | {each.nice} |"
            for number, each in enumerate(idle, 1)
        ),
        "",
        "Command: `make bench-validators`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=120.0)
    parser.add_argument("--report", type=Path, help="Where to write the table.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = report(*measure(args.pairs, args.idle_s, Path(folder)))
    print(text)
    if args.report:
        args.report.write_text(text)


if __name__ == "__main__":
    main()
