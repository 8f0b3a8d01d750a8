"""Five unequal engines with continuous batching, shown as vLLM, SGLang and llama.cpp: Sparewatt beside other routers.

Run `make bench-servers`. The engines batch as vLLM does, with chunked prefill, a KV cache and preemption; what they
call themselves changes their pages, not their work. A bursty code-like trace comes at 60 % and at 110 % of what they
can do together. Each target gets fresh engines and starts cold. A request without its whole, right text within the
time-out is lost, and counts with the time-out. For Sparewatt the predicted first token of each match is compared with
the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from bench.batching_engines import CHUNK_TOKENS, ENGINES, BatchingEngine, scheduler_of, simulate
from bench.code_trace import MAX_TOKENS, CodeRequest, burstiness, code_sizes, code_trace
from bench.figures import percentile
from bench.peers import PEERS, Peer, install, running_peer
from bench.realtime import prefer_realtime
from bench.rollout import roll_out

from sparewatt.sim.servers.facts import ServerKind
from tests.integration.streaming import Endpoint, Streamed, stream_all, wait_until_answering
from tests.integration.unequal import MODEL, endpoint_of, jobs_started, unequal_network
from tests.processes import end_process, start_process, wait_until

LOADS = (0.6, 1.1)
SATURATED = 400
"""Requests by which an engine's capacity is computed."""
READY_S = 90.0
WARM_UP = 10
POLICY = "cache_aware"
OURS = "Sparewatt"
FLOOR = "exact roll-out, computed"
SIMULATED = "Sparewatt, simulated"
COMPUTED = (FLOOR, SIMULATED)
FACTORS = (1.5, 3.0)
MATCHES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Mix:
    """What each engine calls itself, in their order."""

    name: str
    kinds: tuple[ServerKind, ...]


MIXED = Mix("mixed", ("vllm", "sglang", "llama.cpp", "vllm", "sglang"))
MIXES = (
    MIXED,
    Mix("all vLLM", ("vllm",) * 5),
    Mix("all SGLang", ("sglang",) * 5),
    Mix("all llama.cpp", ("llama.cpp",) * 5),
)


def capacity_rps(engine: BatchingEngine, *, seed: int) -> float:
    """Requests of the trace per second, with so many waiting that the engine is never short of work."""
    scheduler = scheduler_of(engine)
    for prompt_tokens, answer_tokens in code_sizes(SATURATED, seed=seed):
        scheduler.submit(0.0, prompt_tokens=prompt_tokens, new_tokens=answer_tokens)
    return SATURATED / scheduler.advance(float("inf"))[-1][0]


# the engines


@contextmanager
def running_servers(folder: Path, mix: Mix) -> Iterator[dict[str, str]]:
    """Their addresses by name."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(_server(folder, engine, kind)) for engine, kind in zip(ENGINES, mix.kinds, strict=True)
        ]
        wait_until(lambda: all(file.exists() for file in files), "not all engines listen")
        yield {engine.name: f"http://127.0.0.1:{file.read_text()}" for engine, file in zip(ENGINES, files, strict=True)}


@contextmanager
def _server(folder: Path, engine: BatchingEngine, kind: ServerKind) -> Iterator[Path]:
    port_file = folder / f"{engine.name}.port"
    argv = [
        *(sys.executable, "-m", "sparewatt.testing", f"--model={MODEL}", f"--port-file={port_file}"),
        f"--speaks={kind}",
        *engine.flags,
    ]
    process = start_process(argv, output=folder / f"{engine.name}.txt")
    try:
        yield port_file
    finally:
        end_process(process, signal.SIGTERM)


# one run


@dataclass(slots=True)
class ServerRun:
    """One target under one load. Times in seconds; a lost request has the time-out."""

    target: str
    mix: str
    load: float
    ttft_s: list[float]
    e2e_s: list[float]
    lost: dict[str, int]
    jobs: dict[str, int]
    predictions: list[tuple[float, float]] = field(default_factory=list)
    """Predicted and real first token of each match that the gateway still explains."""

    @property
    def lost_count(self) -> int:
        return sum(self.lost.values())


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share."""

    rps: float
    duration_s: float
    seed: int
    timeout_s: float

    def trace(self, load: float) -> list[CodeRequest]:
        return code_trace(rate=load * self.rps, duration_s=self.duration_s, seed=self.seed)


def run_ours(bench: Bench, mix: Mix, load: float) -> ServerRun:
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(Path(name) / "engines", mix) as engines,
        unequal_network(Path(name), engines) as network,
    ):
        return asyncio.run(_measure(bench, load, engines, endpoint_of(network), target=OURS, mix=mix.name))


def run_peer(peer: Peer, bench: Bench, mix: Mix, load: float) -> ServerRun:
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(Path(name) / "engines", mix) as engines,
        running_peer(peer, POLICY, Path(name), list(engines.values())) as root_url,
    ):
        endpoint = Endpoint(root_url, MODEL)
        return asyncio.run(_measure(bench, load, engines, endpoint, target=f"{peer.title} {POLICY}", mix=mix.name))


def run_floor(bench: Bench, load: float) -> ServerRun:
    """No process is started for it."""
    found = roll_out([scheduler_of(engine) for engine in ENGINES], bench.trace(load))
    jobs = {engine.name: count for engine, count in zip(ENGINES, found.jobs, strict=True)}
    return ServerRun(FLOOR, MIXED.name, load, ttft_s=found.ttft_s, e2e_s=found.e2e_s, lost={}, jobs=jobs)


def run_simulated(bench: Bench, load: float) -> ServerRun:
    found = simulate(MIXED.kinds, bench.trace(load), seed=bench.seed)
    jobs = {engine.name: count for engine, count in zip(ENGINES, found.jobs, strict=True)}
    return ServerRun(SIMULATED, MIXED.name, load, ttft_s=found.ttft_s, e2e_s=found.e2e_s, lost={}, jobs=jobs)


async def _measure(
    bench: Bench, load: float, engines: Mapping[str, str], endpoint: Endpoint, *, target: str, mix: str
) -> ServerRun:
    trace = bench.trace(load)
    ask = partial(stream_all, endpoint, max_tokens=MAX_TOKENS, timeout_s=bench.timeout_s)
    await wait_until_answering(endpoint, ceiling_s=READY_S)
    warm_up = code_trace(rate=1.0, duration_s=WARM_UP, seed=bench.seed + 1)
    await ask([one.prompt for one in warm_up], [0.3 * number for number in range(len(warm_up))])
    before = jobs_started(engines)
    answers = await ask([one.prompt for one in trace], [one.at_s for one in trace])
    after = jobs_started(engines)
    return ServerRun(
        target=target,
        mix=mix,
        load=load,
        ttft_s=[_time(one, one.first_token_s, bench.timeout_s) for one in answers],
        e2e_s=[_time(one, one.ended_s, bench.timeout_s) for one in answers],
        lost=dict(Counter(why for one in answers if (why := one.lost) is not None)),
        jobs={name: after[name] - before[name] for name in engines},
        predictions=await _predictions(endpoint, answers) if target == OURS else [],
    )


def _time(answer: Streamed, time_s: float | None, timeout_s: float) -> float:
    return timeout_s if answer.lost is not None or time_s is None else time_s


async def _predictions(endpoint: Endpoint, answers: Sequence[Streamed]) -> list[tuple[float, float]]:
    known = [one for one in answers if one.lost is None and "x-sparewatt-match-id" in one.headers]
    few = asyncio.Semaphore(MATCHES_AT_ONCE)
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {endpoint.api_key}"}) as session:
        found = await asyncio.gather(*(_prediction(session, endpoint, one, few) for one in known))
    return [pair for pair in found if pair is not None]


async def _prediction(
    session: aiohttp.ClientSession, endpoint: Endpoint, answer: Streamed, few: asyncio.Semaphore
) -> tuple[float, float] | None:
    """None if the gateway does not keep the match any more, or the chosen node is not among the ranked."""
    url = f"{endpoint.root_url}/v1/matches/{answer.headers['x-sparewatt-match-id']}"
    async with few, session.get(url) as reply:
        match = await reply.json() if reply.status == 200 else {}
    ranked = {one["node"]: one["predicted_ttft_s"] for one in match.get("ranked", ())}
    predicted_s = ranked.get(match.get("chosen"))
    return None if predicted_s is None or answer.first_token_s is None else (predicted_s, answer.first_token_s)


# the tables


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def within(predictions: Sequence[tuple[float, float]], factor: float) -> float:
    """The share of predictions that were off by at most this factor, either way."""
    if not predictions:
        return 0.0
    return mean([1 / factor <= predicted / real <= factor for predicted, real in predictions])


def figures(run: ServerRun) -> dict[str, float]:
    """What is compared between targets; less is better."""
    return {
        "first token mean": mean(run.ttft_s),
        "first token p50": percentile(run.ttft_s, 0.5),
        "first token p95": percentile(run.ttft_s, 0.95),
        "completion mean": mean(run.e2e_s),
        "completion p50": percentile(run.e2e_s, 0.5),
        "completion p95": percentile(run.e2e_s, 0.95),
    }


def ratios(runs: Sequence[ServerRun], load: float) -> dict[str, float]:
    """How many times better than the better of the others, each figure in the mixed fleet."""
    found = [run for run in runs if run.load == load and run.mix == MIXED.name]
    ours = [figures(run) for run in found if run.target == OURS]
    others = [figures(run) for run in found if run.target not in (OURS, *COMPUTED)]
    if not ours or not others:
        return {}
    return {name: min(other[name] for other in others) / ours[0][name] for name in ours[0]}


def over_floor(runs: Sequence[ServerRun], load: float) -> dict[str, float]:
    """Sparewatt in the mixed fleet over what is possible with perfect knowledge."""
    found = {run.target: figures(run) for run in runs if run.load == load and run.mix == MIXED.name}
    if OURS not in found or FLOOR not in found:
        return {}
    return {name: found[OURS][name] / found[FLOOR][name] for name in found[OURS]}


def simulated_over_real(runs: Sequence[ServerRun], load: float) -> dict[str, float]:
    """The simulator with the shipped matcher over the real processes."""
    found = {run.target: figures(run) for run in runs if run.load == load and run.mix == MIXED.name}
    if OURS not in found or SIMULATED not in found:
        return {}
    return {name: found[SIMULATED][name] / found[OURS][name] for name in found[OURS]}


def spread(runs: Sequence[ServerRun], load: float) -> dict[str, float]:
    """The worst of Sparewatt's fleets over the best, each figure: names of the engines should not matter."""
    ours = [figures(run) for run in runs if run.load == load and run.target == OURS]
    return (
        {name: max(each[name] for each in ours) / min(each[name] for each in ours) for name in ours[0]} if ours else {}
    )


def table(runs: Sequence[ServerRun]) -> str:
    heads = (
        *("load", "engines shown as", "target", "requests", "lost", "first token mean / p50 / p95 s"),
        *("completion mean / p50 / p95 s", f"jobs {' / '.join(engine.name for engine in ENGINES)}"),
    )
    rows = [_row(heads), _row(["---"] * len(heads))]
    for run in runs:
        lost = ", ".join(f"{count} {why}" for why, count in run.lost.items()) or "0"
        cells = (f"{run.load:.0%}", run.mix, run.target, str(len(run.ttft_s)), lost)
        jobs = " / ".join(str(run.jobs[engine.name]) for engine in ENGINES)
        rows.append(_row([*cells, _times(run.ttft_s), _times(run.e2e_s), jobs]))
    return "\n".join(rows)


def _times(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} / {percentile(values, 0.5):.3f} / {percentile(values, 0.95):.3f}"


def ratio_table(runs: Sequence[ServerRun]) -> str:
    parts = ("mean", "p50", "p95")
    names = [f"{what} {part}" for what in ("first token", "completion") for part in parts]
    rows = [_row(("load", "what", *names)), _row(["---"] * (len(names) + 2))]
    kinds = (
        ("times better than the better router", ratios),
        ("over the exact roll-out", over_floor),
        ("worst over best of the four fleets", spread),
        ("simulated over real", simulated_over_real),
    )
    for load in dict.fromkeys(run.load for run in runs):
        for what, of in kinds:
            found = of(runs, load)
            rows.append(_row([f"{load:.0%}", what, *(f"{found[name]:.2f}" if found else "-" for name in names)]))
    return "\n".join(rows)


def prediction_table(runs: Sequence[ServerRun]) -> str:
    heads = (
        "load",
        "engines shown as",
        "matches",
        *(f"within {factor}" for factor in FACTORS),
        "p5 / p50 / p95 of predicted / real",
    )
    rows = [_row(heads), _row(["---"] * len(heads))]
    for run in (run for run in runs if run.target == OURS and run.predictions):
        off = [predicted / real for predicted, real in run.predictions]
        shares = [f"{within(run.predictions, factor):.0%}" for factor in FACTORS]
        spans = " / ".join(f"{percentile(off, share):.2f}" for share in (0.05, 0.5, 0.95))
        rows.append(_row([f"{run.load:.0%}", run.mix, str(len(off)), *shares, spans]))
    return "\n".join(rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def report(runs: Sequence[ServerRun], bench: Bench, missing: Mapping[str, str]) -> str:
    engines = "\n".join(
        _row(
            [
                *(engine.name, f"{engine.prefill_tps:,.0f}", f"{engine.step_s * 1000:.0f}", f"{engine.kv_tokens:,}"),
                f"{capacity_rps(engine, seed=bench.seed):.2f}",
            ]
        )
        for engine in ENGINES
    )
    absent = "".join(
        f"\n{name} is not in the table; it could not be installed: {why}.\n" for name, why in missing.items()
    )
    trace = bench.trace(LOADS[0])
    prompt, answer = mean([one.prompt_tokens for one in trace]), mean([one.answer_tokens for one in trace])
    return f"""# Five servers with continuous batching

Made by `make bench-servers` (bench/real_servers.py) on {os.cpu_count()} cores, Python {platform.python_version()};
client, routers, nodes and engines share the cores. {bench.duration_s:.0f} s of a bursty code-like trace
(bench/code_trace.py, seed {bench.seed}): prompts of {prompt:.0f} tokens in the mean, answers of {answer:.0f}, gaps with
a coefficient of variation of {burstiness(trace):.1f}. Every target starts cold with fresh engines. A request without
its whole, right text within {bench.timeout_s:.0f} s is lost and counts with that time. The other routers run with their
own defaults and `{POLICY}`. The exact roll-out is computed, not measured: all lengths are known, and each request goes
where it lengthens the completion of all the least.

{table(runs)}
{absent}
## Ratios

{ratio_table(runs)}

## Predicted and real first token

The prediction is that of the match's explanation; the real one is the client's.

{prediction_table(runs)}

## The engines

They batch as vLLM does: {CHUNK_TOKENS} tokens in an iteration, writers before prompts, blocks of 16 tokens, preemption
of the youngest. Together they serve {bench.rps:.1f} requests of the trace per second when they are never short of work.

| engine | prefill tokens/s | step ms | KV cache tokens | capacity req/s |
| --- | --- | --- | --- | --- |
{engines}
"""


# the command


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--duration-s", type=float, default=60.0, help="Of the trace, for each target.")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="Shares of the capacity.")
    parser.add_argument("--mixes", nargs="+", choices=[mix.name for mix in MIXES], default=[mix.name for mix in MIXES])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout-s", type=float, default=120.0)
    parser.add_argument("--no-peers", action="store_true", help="Only Sparewatt.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write every time of every run here.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write the tables here, as Markdown.")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    options = parse(argv)
    wanted = () if options.no_peers else PEERS
    missing = {peer.title: why for peer in wanted if (why := install(peer)) is not None}
    peers = [peer for peer in wanted if peer.title not in missing]
    rps = sum(capacity_rps(engine, seed=options.seed) for engine in ENGINES)
    bench = Bench(rps, options.duration_s, options.seed, options.timeout_s)
    print(f"capacity {rps:.1f} requests/s; real-time priority: {'yes' if prefer_realtime() else 'no'}", flush=True)
    runs: list[ServerRun] = []
    for load in options.loads:
        runs += [_tell(run_floor(bench, load)), _tell(run_simulated(bench, load))]
        for mix in (mix for mix in MIXES if mix.name in options.mixes):
            runs.append(_tell(run_ours(bench, mix, load)))
            if mix is MIXED:  # what the engines call themselves makes no difference to the others
                runs += [_tell(run_peer(peer, bench, mix, load)) for peer in peers]
    print(table(runs), ratio_table(runs), prediction_table(runs), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs]))
    if options.report:
        options.report.write_text(report(runs, bench, missing))


def _tell(run: ServerRun) -> ServerRun:
    said = f"first token {_times(run.ttft_s)}, completion {_times(run.e2e_s)} s, lost {run.lost}, jobs {run.jobs}"
    print(f"{run.load:.0%} {run.mix} {run.target}: {said}", flush=True)
    return run


if __name__ == "__main__":
    main(sys.argv[1:])
