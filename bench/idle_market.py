"""What an idle lease market costs the inference path: processor time of gateway and nodes per request and per token.

Run `make bench-idle-market`. Two networks run beside each other, one with chain, validators and registered providers,
one with `--no-chain`. They answer the same requests in interleaved pairs; the ratio of each pair is taken from the
processes' own processor time, so what else the machine does matters little. Everything is on loopback.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bench.environment import describe

from tests.integration.networks import Network, start_network
from tests.processes import wait_until

GOAL = 1.02
TICKS = os.sysconf("SC_CLK_TCK")
COUNTED = ("gateway\0run", "node\0join")
AT_ONCE = 8
NODES = 3
READY_S = 90.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds of the gateway and the nodes."""

    requests: int
    tokens: int
    processor_s: float

    @property
    def per_request_ms(self) -> float:
        return 1000 * self.processor_s / self.requests


@dataclass(frozen=True, slots=True)
class Pair:
    with_market: Spent
    without: Spent

    @property
    def ratio(self) -> float:
        return self.with_market.per_request_ms / self.without.per_request_ms


def counted_pids(network: Network) -> list[int]:
    found = []
    for pid, _ in network.descendants():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        if any(words in command for words in COUNTED):
            found.append(pid)
    return found


def processor_s(pids: Sequence[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def ask(network: Network, max_tokens: int) -> None:
    body = {
        "model": network.model,
        "messages": [{"role": "user", "content": "Count."}],
        "max_tokens": max_tokens,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {network.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{network.base_url}/chat/completions", data=msgspec.json.encode(body), headers=headers
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        if b"[DONE]" not in reply.read():
            raise SystemExit("a stream broke off")


def run(network: Network, *, requests: int, max_tokens: int) -> Spent:
    pids = counted_pids(network)
    before = processor_s(pids)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: ask(network, max_tokens), range(requests)))
    return Spent(requests, requests * max_tokens, processor_s(pids) - before)


def is_market_ready(network: Network) -> bool:
    request = urllib.request.Request(
        f"{network.base_url}/market/validators", headers={"Authorization": f"Bearer {network.api_key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            found = msgspec.json.decode(reply.read())
    except OSError:
        return False
    snapshot = found.get("snapshot")
    return snapshot is not None and snapshot["count"] >= NODES


def measure(pairs: int, requests: int, max_tokens: int, folder: Path) -> list[Pair]:
    flags = ("--engine=deterministic", f"--nodes={NODES}")
    with (
        start_network(folder / "market", *flags, chain=True) as market,
        start_network(folder / "plain", *flags) as plain,
    ):
        wait_until(lambda: is_market_ready(market), "the market is not ready", ceiling_s=READY_S)
        for network in (market, plain):
            run(network, requests=requests, max_tokens=max_tokens)  # warm
        found = []
        for number in range(pairs):
            order = (market, plain) if number % 2 else (plain, market)
            spent = {id(each): run(each, requests=requests, max_tokens=max_tokens) for each in order}
            found.append(Pair(spent[id(market)], spent[id(plain)]))
        return found


def report(pairs: Sequence[Pair]) -> str:
    ratios = sorted(pair.ratio for pair in pairs)
    middle = statistics.median(ratios)
    lines = [
        "# What an idle market costs the inference path",
        "",
        f"Processor time of the gateway and its {NODES} nodes for the same streamed requests, on a network with chain,",
        "four validators and registered providers, and on one with `--no-chain`: interleaved pairs, both networks up.",
        "",
        describe(),
        "",
        "| pair | with market, ms per request | without | ratio |",
        "| --- | --- | --- | --- |",
        *(
            f"| {at} | {pair.with_market.per_request_ms:.2f} | {pair.without.per_request_ms:.2f} | {pair.ratio:.3f} |"
            for at, pair in enumerate(pairs, 1)
        ),
        "",
        f"Median ratio {middle:.3f} (least {ratios[0]:.3f}, largest {ratios[-1]:.3f}); the goal is {GOAL}. Each",
        f"request has {pairs[0].without.tokens // pairs[0].without.requests} tokens: the ratio per token is the same.",
        "",
        "Command: `make bench-idle-market`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=400, help="Of each half of a pair.")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--report", type=Path, help="Where to write the table.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = report(measure(args.pairs, args.requests, args.max_tokens, Path(folder)))
    print(text)
    if args.report:
        args.report.write_text(text)


if __name__ == "__main__":
    main()
