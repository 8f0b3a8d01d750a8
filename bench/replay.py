"""Checks the simulator against reality: the same nodes and arrivals, as real processes and on the virtual clock.

A simulated machine reads one prompt after the other, so the engines of this check have one slot each, and short
answers. An idle engine then takes as long on both sides by construction, and agreement there proves nothing: what is
checked is queueing and choice. So three loads are compared, and for each it is said how many requests had to queue.
Prices are zero on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.sim.scenario import (
    DECODE_BANDWIDTH_SHARE,
    PREFILL_FLOPS_SHARE,
    STEP_FIXED_S,
    STEP_PER_JOB_S,
    Scenario,
    SimGpu,
    SimModel,
    Site,
    make_scenario,
)
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import World
from tests.integration.unequal import PROMPT_TOKENS, UnequalNode

NODES = tuple(
    UnequalNode(name, slots=1, capacity_rps=rps, answer_tokens=2, reading_share=0.95)
    for name, rps in (("quick", 20.0), ("medium", 8.0), ("late", 2.0), ("last", 1.0))
)
RATES = (12.0, 20.0, 24.0)
"""Of a capacity of 31: few, many or most requests queue. Chosen from simulated queues, before measuring."""
DURATION_S = 20.0
HEARTBEAT_S = 5.0
RTT_S = 0.001
"""As gateways measure it for nodes on loopback."""
SEEDS = 5
QUICKEST = 0.1
UNTIL_S = 3600.0
WITHIN = 0.25

_MODEL = SimModel(
    number=0, name="unequal", weights_bytes=5e8, active_params=1e9, kv_bytes_per_token=5e3, popularity=1.0
)


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, measured and simulated."""

    name: str
    measured_s: float
    measured_runs_s: tuple[float, ...]
    simulated_s: float

    @property
    def difference(self) -> float:
        return self.simulated_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    rate: float
    lines: tuple[Line, ...]
    queued: tuple[float, float]
    """The share of requests whose node was busy, measured and simulated."""
    measured_shares: tuple[float, ...]
    simulated_shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunTimes:
    """One run, real or simulated: seconds from the request to first token and to the end, and jobs by node."""

    ttft_s: Sequence[float]
    e2e_s: Sequence[float]
    jobs: Sequence[int]


def requests_at(rate: float) -> int:
    return round(DURATION_S * rate)


def compare(rate: float, measured: Sequence[RunTimes], arrivals_s: Sequence[float]) -> ReplayResult:
    added_s = forwarding_s(measured)
    simulated = [simulate(arrivals_s, seed=seed, added_s=added_s) for seed in range(SEEDS)]
    return ReplayResult(
        rate,
        tuple(
            _line(f"{what} p{share * 100:.0f}", share, [_times(run, what) for run in measured], simulated)
            for what in ("first token", "whole answer")
            for share in (0.5, 0.95)
        ),
        (_queued(measured), _queued(simulated)),
        _shares(measured),
        _shares(simulated),
    )


def forwarding_s(measured: Sequence[RunTimes]) -> float:
    """What real processes add to prefill, from the quickest answers, whose engines were idle. It occupies the slot."""
    quickest_s = statistics.median(percentile(run.ttft_s, QUICKEST) for run in measured)
    return max(0.0, quickest_s - min(node.reading_s for node in NODES) - RTT_S)


def _times(run: RunTimes, what: str) -> Sequence[float]:
    return run.ttft_s if what == "first token" else run.e2e_s


def _line(name: str, share: float, measured: Sequence[Sequence[float]], simulated: Sequence[RunTimes]) -> Line:
    runs = tuple(percentile(times, share) for times in measured)
    what = name.rpartition(" ")[0]
    simulated_s = statistics.median(percentile(_times(run, what), share) for run in simulated)
    return Line(name, statistics.median(runs), runs, simulated_s)


def _shares(runs: Sequence[RunTimes]) -> tuple[float, ...]:
    jobs = [sum(run.jobs[place] for run in runs) for place in range(len(NODES))]
    return tuple(count / sum(jobs) for count in jobs)


def _queued(runs: Sequence[RunTimes]) -> float:
    """The share of first tokens later than 1.1 times the time of every idle engine."""
    times = [time_s for run in runs for time_s in run.ttft_s]
    idle = [node.reading_s for node in NODES]
    return sum(not any(idle_s <= time_s <= 1.1 * idle_s + 0.005 for idle_s in idle) for time_s in times) / len(times)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# the simulated side


def simulate(arrivals_s: Sequence[float], *, seed: int, added_s: float = 0.0) -> RunTimes:
    scenario = _scenario(added_s)
    world = World(scenario, seed=seed, gateway_regions=(0,))
    gateways = SimGateways(world, BALANCED, heartbeat_s=HEARTBEAT_S, seed=seed)
    settled_s = 2 * HEARTBEAT_S  # by then every node has reported, as in the real network
    jobs = [_job(number, settled_s + at_s) for number, at_s in enumerate(arrivals_s)]
    world.run(jobs, gateways, until_s=UNTIL_S)
    late = float("inf")
    return RunTimes(
        [late if job.first_token_s is None else job.first_token_s - job.arrived_s for job in jobs],
        [late if job.finished_s is None else job.finished_s - job.arrived_s for job in jobs],
        [sum(job.site == place for job in jobs) for place in range(len(NODES))],
    )


def _job(number: int, at_s: float) -> SimJob:
    """The first token of an answer costs no step of its own."""
    return SimJob(number, _MODEL, at_s, prompt_tokens=PROMPT_TOKENS, output_tokens=NODES[0].answer_tokens - 1, region=0)


def _scenario(added_s: float) -> Scenario:
    drawn = make_scenario(len(NODES), seed=0)
    sites = tuple(_site(site, node, added_s) for site, node in zip(drawn.sites, NODES, strict=True))
    return replace(drawn, models=(_MODEL,), sites=sites, regions=("here",), user_shares=(1.0,), rtt_s=((RTT_S,),))


def _site(drawn: Site, node: UnequalNode, added_s: float) -> Site:
    """A machine with exactly the prefill and decoding speed of the engine, which never dies."""
    prefill_tps = PROMPT_TOKENS / (node.reading_s + added_s)
    step_s = 1 / node.decode_tps - STEP_FIXED_S - STEP_PER_JOB_S
    gpu = SimGpu(
        name=node.name,
        vram_gb=24.0,
        tflops=prefill_tps * 2 * _MODEL.active_params / PREFILL_FLOPS_SHARE / 1e12,
        bandwidth_gb_s=_MODEL.weights_bytes / step_s / DECODE_BANDWIDTH_SHARE / 1e9,
        usd_per_hour=0.0,
        share=1.0,
        at_home=False,
    )
    return replace(
        drawn,
        gpu=gpu,
        region=0,
        last_mile_s=0.0,
        speed=1.0,
        usd_per_hour=0.0,
        warm=(0,),
        mtbf_s=1e12,
        slots=node.slots,
    )


# the table


def replay_section(found: Sequence[ReplayResult]) -> str:
    capacities = "/".join(f"{node.capacity_rps:.0f}" for node in NODES)
    names = " / ".join(node.name for node in NODES)
    rows = "\n".join(_rows(one) for one in found)
    far = [f"{line.name} at {one.rate:.0f}/s" for one in found for line in one.lines if abs(line.difference) > WITHIN]
    return f"""
## The simulator against real processes

The same arrivals, {DURATION_S:.0f} s of them at three rates, to four engines of {capacities} requests a second (one
slot each, {PROMPT_TOKENS} prompt tokens, {NODES[0].answer_tokens} answer tokens, no prices) behind the real gateway,
and to the simulator with the shipped matcher and admission (median of {SEEDS} seeds). The simulated network adds
{RTT_S * 1000:.0f} ms, and reading takes as much longer as the quickest tenth of the measured answers shows. An idle
engine takes as long on both sides by construction, so the rows count for as much as there is queueing. Goal:
within {100 * WITHIN:.0f} %. Beyond it: {", ".join(far) or "none"}.

| rate | figure | measured ms (each run) | simulated ms | difference |
| --- | --- | --- | --- | --- |
{rows}

Jobs are {names}.
"""


def _rows(one: ReplayResult) -> str:
    rows = [
        f"| {one.rate:.0f}/s | {line.name} | {line.measured_s * 1000:.0f} ({_each(line.measured_runs_s)}) "
        f"| {line.simulated_s * 1000:.0f} | {100 * line.difference:+.0f} % |"
        for line in one.lines
    ]
    queued = f"| {one.rate:.0f}/s | requests that queued % | {100 * one.queued[0]:.0f} | {100 * one.queued[1]:.0f} | |"
    jobs = f"| {one.rate:.0f}/s | jobs % | {_percent(one.measured_shares)} | {_percent(one.simulated_shares)} | |"
    return "\n".join([*rows, queued, jobs])


def _each(runs_s: Sequence[float]) -> str:
    return ", ".join(f"{run_s * 1000:.0f}" for run_s in runs_s)


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in shares)
