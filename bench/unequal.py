"""Routers in front of nodes whose speeds differ fifty-fold: Sparewatt, two Rust routers, the fast node alone.

Run `make bench-unequal`. Four deterministic engines of 98, 24, 2 and 2 requests a second; 600 streamed requests arrive
at random at 60 a second, the same times and prompts for every target. Each target gets fresh engines and starts cold,
one after the other, with the fast node alone (the floor) before and after. Rounds are repeated; medians count. A
request without its whole, right text within the time-out is lost and counts as slower than all others. All loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from bench.figures import percentile
from bench.peers import PEERS, POLICIES, Peer, install, running_peer
from bench.realtime import prefer_realtime

from tests.integration.cascade import nodes as nodes_of
from tests.integration.networks import Network
from tests.integration.streaming import (
    Endpoint,
    Streamed,
    poisson_arrivals_s,
    stream_all,
    wait_until_answering,
)
from tests.integration.unequal import (
    ANSWER_TOKENS,
    FAST,
    MODEL,
    NODES,
    PROMPT_TOKENS,
    UnequalNode,
    endpoint_of,
    jobs_started,
    prompts,
    running_engines,
    unequal_network,
)

FLOOR = "fast node alone"
OURS = "Sparewatt"
WARM_UP = 8
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    rate: float
    seed: int
    timeout_s: float
    nodes: tuple[UnequalNode, ...] = NODES

    def arrivals_s(self) -> list[float]:
        return poisson_arrivals_s(self.requests, rate=self.rate, seed=self.seed)


@dataclass(slots=True)
class Run:
    """One target under the load, once. Times in seconds; a lost request counts as infinitely late."""

    target: str
    ttft_s: list[float]
    e2e_s: list[float]
    lost: dict[str, int]
    jobs: dict[str, int]
    slowest: list[dict[str, object]] = field(default_factory=list)

    @property
    def lost_count(self) -> int:
        return sum(self.lost.values())


Open = Callable[[Path, dict[str, str]], AbstractContextManager[Endpoint]]
"""Starts a router in front of the engines."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    open: Open


# targets


@contextmanager
def _fast_alone(_: Path, engines: dict[str, str]) -> Iterator[Endpoint]:
    yield Endpoint(engines[FAST.name], MODEL)


@contextmanager
def _sparewatt(folder: Path, engines: dict[str, str], *, node_flags: Sequence[str] = ()) -> Iterator[Endpoint]:
    with unequal_network(folder, engines, *node_flags) as network:
        _print_measured(network)
        yield endpoint_of(network)


@contextmanager
def _peer(peer: Peer, policy: str, folder: Path, engines: dict[str, str]) -> Iterator[Endpoint]:
    with running_peer(peer, policy, folder, list(engines.values())) as root_url:
        yield Endpoint(root_url, MODEL)


def _print_measured(network: Network) -> None:
    for name, node in sorted(nodes_of(network).items()):
        speed = node["models"][0]["measured"]
        print(
            f"  {name} measured: first token after 1,000 in {speed['first_token_s'] * 1000:.0f} ms, "
            f"reads {speed['prefill_tps']:.0f}/s, writes {speed['decode_tps']:.0f}/s",
            flush=True,
        )


def targets(peers: Sequence[Peer]) -> list[Target]:
    """The floor is first and last."""
    others = [Target(f"{peer.title} {policy}", partial(_peer, peer, policy)) for peer in peers for policy in POLICIES]
    return [Target(FLOOR, _fast_alone), Target(OURS, _sparewatt), *others, Target(FLOOR, _fast_alone)]


# one run


def run_target(target: Target, load: Load) -> Run:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = stack.enter_context(running_engines(folder / "engines", load.nodes))
        endpoint = stack.enter_context(target.open(folder, engines))
        before, answers, slowest = asyncio.run(_ask_all(endpoint, engines, load))
        jobs = {name: count - before[name] for name, count in jobs_started(engines).items()}
    lost = Counter(why for answer in answers if (why := answer.lost) is not None)
    return Run(
        target.name,
        ttft_s=[_time(answer, answer.first_token_s) for answer in answers],
        e2e_s=[_time(answer, answer.ended_s) for answer in answers],
        lost=dict(lost),
        jobs=jobs,
        slowest=slowest,
    )


def _time(answer: Streamed, time_s: float | None) -> float:
    return float("inf") if answer.lost is not None or time_s is None else time_s


async def _ask_all(
    endpoint: Endpoint, engines: dict[str, str], load: Load
) -> tuple[dict[str, int], list[Streamed], list[dict[str, object]]]:
    ask = partial(stream_all, endpoint, max_tokens=load.nodes[0].answer_tokens, timeout_s=load.timeout_s)
    await wait_until_answering(endpoint, ceiling_s=READY_S)
    await ask(prompts(load.requests + WARM_UP)[load.requests :], [0.5 * number for number in range(WARM_UP)])
    before = jobs_started(engines)
    answers = await ask(prompts(load.requests), load.arrivals_s())
    return before, answers, await _explain_slowest(endpoint, answers)


async def _explain_slowest(
    endpoint: Endpoint, answers: Sequence[Streamed], *, count: int = 5
) -> list[dict[str, object]]:
    """Print the gateway's explanation of its slowest matches; other routers have none."""
    known = [one for one in answers if "x-sparewatt-match-id" in one.headers and one.first_token_s is not None]
    slowest = sorted(known, key=lambda one: -(one.first_token_s or 0.0))[:count]
    found: list[dict[str, object]] = []
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {endpoint.api_key}"}) as session:
        for one in slowest:
            async with session.get(f"{endpoint.root_url}/v1/matches/{one.headers['x-sparewatt-match-id']}") as reply:
                found.append({"first_token_s": one.first_token_s, "match": await reply.json()})
    return found


# the table


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians over the rounds."""

    target: str
    runs: int
    answered: float
    lost_max: int
    ttft_p50_s: float
    ttft_p95_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    shares: tuple[float, ...]
    ttft_p95_over_floor: float
    ttft_p95_runs_s: tuple[float, ...]


def summarize(runs: Sequence[Run]) -> list[Summary]:
    by_target: dict[str, list[Run]] = {}
    for run in runs:
        by_target.setdefault(run.target, []).append(run)
    floor = statistics.median_high([percentile(run.ttft_s, 0.95) for run in by_target[FLOOR]])
    return [_summarize(name, found, floor_s=floor) for name, found in by_target.items()]


def _summarize(name: str, runs: Sequence[Run], *, floor_s: float) -> Summary:
    def median(of: Callable[[Run], float]) -> float:
        return statistics.median_high([of(run) for run in runs])

    ttft_p95_s = median(lambda run: percentile(run.ttft_s, 0.95))
    jobs = [sum(run.jobs[node.name] for run in runs) for node in NODES]
    return Summary(
        target=name,
        runs=len(runs),
        answered=median(lambda run: len(run.ttft_s) - run.lost_count),
        lost_max=max(run.lost_count for run in runs),
        ttft_p50_s=median(lambda run: percentile(run.ttft_s, 0.5)),
        ttft_p95_s=ttft_p95_s,
        e2e_p50_s=median(lambda run: percentile(run.e2e_s, 0.5)),
        e2e_p95_s=median(lambda run: percentile(run.e2e_s, 0.95)),
        shares=tuple(count / max(1, sum(jobs)) for count in jobs),
        ttft_p95_over_floor=ttft_p95_s / floor_s,
        ttft_p95_runs_s=tuple(percentile(run.ttft_s, 0.95) for run in runs),
    )


def table(summaries: Sequence[Summary], missing: dict[str, str], load: Load) -> str:
    heads = (
        *("target", "answered", "lost", "first token p50 / p95 ms", "p95 / floor", "whole answer p50 / p95 ms"),
        *("jobs begun fast / mid / slow / slow %", "first token p95 of each run ms"),
    )
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for one in summaries:
        ms = partial(_ms, timeout_s=load.timeout_s)
        shares = " / ".join(f"{100 * share:.0f}" for share in one.shares)
        ratio = f"{one.ttft_p95_over_floor:.2f}" if one.ttft_p95_over_floor < float("inf") else "lost"
        each = ", ".join(ms(value) for value in one.ttft_p95_runs_s)
        rows.append(
            f"| {one.target} | {one.answered:.0f} | {load.requests - one.answered:.0f} "
            f"| {ms(one.ttft_p50_s)} / {ms(one.ttft_p95_s)} | {ratio} "
            f"| {ms(one.e2e_p50_s)} / {ms(one.e2e_p95_s)} | {shares} | {each} |"
        )
    rows += [f"| {name} | not installed: {why} | | | | | | |" for name, why in missing.items()]
    return "\n".join(rows)


def _ms(seconds: float, *, timeout_s: float) -> str:
    """Of a percentile that is a lost request, only the time-out is known as a lower bound."""
    return f"{seconds * 1000:,.0f}" if seconds < float("inf") else f"lost (> {timeout_s * 1000:,.0f})"


def report(summaries: Sequence[Summary], missing: dict[str, str], load: Load) -> str:
    engines = "\n".join(
        f"| {node.name} | {node.slots} | {node.service_s * 1000:.1f} | {node.reading_s * 1000:.1f} "
        f"| {node.prefill_tps:.1f} | {node.decode_tps:.1f} | {node.capacity_rps:.0f} |"
        for node in NODES
    )
    return f"""# Four unequal nodes

Made by `make bench-unequal` (bench/unequal.py) on {os.cpu_count()} cores, Python {platform.python_version()}, real-time
priority where allowed; client, routers, nodes and engines share the cores. {load.requests} streamed requests,
Poisson arrivals at {load.rate:.0f} a second (seed {load.seed}), the same moments and prompts for every target;
{PROMPT_TOKENS} prompt tokens, {ANSWER_TOKENS} answer tokens, time-out {load.timeout_s:.0f} s. Every target starts
cold with fresh engines, one after the other, the fast node alone (the floor) first and last in each round; medians over
the rounds. A request without its whole, right text is lost and counts as slower than all others. The nodes of Sparewatt
join one after the other.

{table(summaries, missing, load)}

Peers run with their own defaults and the named policy. Sparewatt runs as shipped: gateway with Postgres, four node
agents that dial in and measure their engine at joining. Its path is one hop longer (gateway, agent, engine) than that
of the peers (router, engine).

## The engines

Capacity is slots / service time; five sixths of the service go into reading the prompt, a sixth into writing the
answer, so `prefill_tps = {PROMPT_TOKENS} / reading` and `decode_tps = {ANSWER_TOKENS - 1} / writing` (the first
token comes with the end of reading).

| engine | slots | service ms | reading ms | prefill tokens/s | decode tokens/s | capacity req/s |
| --- | --- | --- | --- | --- | --- | --- |
{engines}
"""


# the command


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout-s", type=float, default=30.0)
    parser.add_argument("--no-peers", action="store_true", help="Only Sparewatt and the floor.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write every time of every run here.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write the tables here, as Markdown.")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    options = parse(argv)
    load = Load(options.requests, options.rate, options.seed, options.timeout_s)
    wanted = () if options.no_peers else PEERS
    missing = {peer.title: why for peer in wanted if (why := install(peer)) is not None}
    chosen = targets([peer for peer in wanted if peer.title not in missing])
    print(f"real-time priority: {'yes' if prefer_realtime() else 'no'}", flush=True)
    runs = [_run_and_tell(target, load, number) for number in range(options.rounds) for target in chosen]
    summaries = summarize(runs)
    print(table(summaries, missing, load))
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs]))
    if options.report:
        options.report.write_text(report(summaries, missing, load))


def _run_and_tell(target: Target, load: Load, number: int) -> Run:
    run = run_target(target, load)
    ms = partial(_ms, timeout_s=load.timeout_s)
    p50, p95 = percentile(run.ttft_s, 0.5), percentile(run.ttft_s, 0.95)
    said = f"p50 {ms(p50)} p95 {ms(p95)} ms, lost {run.lost}, jobs {run.jobs}"
    print(f"round {number + 1} {run.target}: {said}", flush=True)
    return run


if __name__ == "__main__":
    main(sys.argv[1:])
