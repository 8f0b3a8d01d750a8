"""A study: every policy, the oracle and the bound, on the same fleets and the same jobs, once per seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparewatt.inference.matcher.formula import BALANCED, RANKINGS
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.results.summary import (
    TIMEOUT_S,
    RunMeasurements,
    RunSummary,
    lower_bound,
    mean_of,
    measure,
    summarise,
)
from sparewatt.sim.scenario import FaultRates, Scenario, make_scenario
from sparewatt.sim.schedulers.baselines import COSTS, Baseline
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.schedulers.oracle import Oracle
from sparewatt.sim.traffic.trace import TraceRequest
from sparewatt.sim.traffic.workload import generate_trace, make_jobs
from sparewatt.sim.world import Scheduler, World

NAMES = (*RANKINGS, *COSTS)
WARM_UP_S = 60.0
ORACLE_WEIGHTS = (2.0, 4.0)
GATEWAY_ORDER = ("use", "eu", "usw", "jp", "in", "sg", "sa", "eu")
"""Where gateways stand: the first N. Eight are one in each region and a second one in the largest."""
GATEWAYS_MAX = len(GATEWAY_ORDER)

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """What is simulated. Times in seconds, rate in requests per second, seeds counted from 1."""

    nodes: int = 500
    rate: float = 135.0
    duration_s: float = 300.0
    gateways: int = 1
    heartbeat_s: float = HealthRules().heartbeat_s
    seeds: int = 2
    rankings: tuple[str, ...] = NAMES
    faults: FaultRates = field(default_factory=FaultRates)
    affinity: bool = True
    """Whether nodes tell that they keep prompts, and gateways remember where those were read."""
    prefix_ram_gb: float = 0.0
    """Main memory of every machine for prompts that it has read."""


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One fleet and its jobs, before anything has happened."""

    scenario: Scenario
    trace: Sequence[TraceRequest]
    regions: tuple[int, ...]
    question: StudyConfig
    seed: int

    def jobs(self) -> list[SimJob]:
        """Fresh ones: a run writes on them."""
        span_s = WARM_UP_S + self.question.duration_s
        jobs = make_jobs(self.trace, self.scenario, rate=self.question.rate, duration_s=span_s, seed=self.seed)
        near = nearest_gateways(self.scenario, self.regions)
        for job in jobs:
            choice = near[job.region]
            job.gateway = choice[job.number % len(choice)]
            job.user_rtt_s = self.scenario.rtt_s[job.region][self.regions[job.gateway]]
        return jobs

    def world(self) -> World:
        return World(self.scenario, seed=self.seed, gateway_regions=self.regions)


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One policy on one case: its numbers and what they were made from."""

    numbers: RunSummary
    outcome: RunMeasurements
    jobs: list[SimJob]
    world: World


@dataclass(slots=True)
class StudyResult:
    question: StudyConfig
    rankings: dict[str, list[RunSummary]] = field(default_factory=dict)
    oracle: list[RunSummary] = field(default_factory=list)
    bound: list[RunSummary] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        garbage = self.question.faults.garbage > 0
        return {
            "policies": {name: mean_of(runs).as_dict(with_garbage=garbage) for name, runs in self.rankings.items()},
            "oracle": mean_of(self.oracle).as_dict(),
            "bound": mean_of(self.bound).as_dict(),
        }


def make_case(question: StudyConfig, trace: Sequence[TraceRequest] | None, *, seed: int) -> StudyCase:
    scenario = make_scenario(question.nodes, seed=seed, faults=question.faults, prefix_ram_gb=question.prefix_ram_gb)
    requests = trace if trace is not None else generate_trace(WARM_UP_S + question.duration_s + 1, seed=seed)
    regions = tuple(scenario.regions.index(name) for name in GATEWAY_ORDER[: question.gateways])
    return StudyCase(scenario, requests, regions, question, seed)


def nearest_gateways(scenario: Scenario, regions: Sequence[int]) -> list[list[int]]:
    """For users of each region, the gateways they may be sent to: all that are equally near."""
    found = []
    for distances in scenario.rtt_s:
        nearest_s = min(distances[region] for region in regions)
        found.append([number for number, region in enumerate(regions) if distances[region] == nearest_s])
    return found


def make_scheduler(name: str, world: World, *, heartbeat_s: float, seed: int, affinity: bool = True) -> Scheduler:
    if name in COSTS:
        return Baseline(world, name, heartbeat_s=heartbeat_s, seed=seed)
    return SimGateways(world, RANKINGS[name], heartbeat_s=heartbeat_s, seed=seed, affinity=affinity)


def run_policy(case: StudyCase, name: str, *, progress: Progress | None = None) -> StudyRun:
    world = case.world()
    question = case.question
    chooser = make_scheduler(name, world, heartbeat_s=question.heartbeat_s, seed=case.seed, affinity=question.affinity)
    return _run(case, world, chooser, name, progress)


def run_oracle(case: StudyCase, *, progress: Progress | None = None) -> StudyRun:
    """The better of the two weights, by mean completion time."""
    runs = []
    for weight in ORACLE_WEIGHTS:
        world = case.world()
        chooser = Oracle(world, others=weight, usd_weight=BALANCED.usd_weight or 0.0)
        runs.append(_run(case, world, chooser, "oracle", progress))
    return min(runs, key=lambda run: run.numbers.e2e_mean)


def run_bound(case: StudyCase) -> RunSummary:
    world, jobs = case.world(), _measured(case.jobs())
    sites = range(len(case.scenario.sites))
    rtt_s = [np.array([world.rtt_s(gateway, site) for site in sites]) for gateway in range(len(case.regions))]
    return summarise(lower_bound(case.scenario, jobs, rtt_s), jobs, case.scenario)


def _run(case: StudyCase, world: World, chooser: Scheduler, name: str, progress: Progress | None) -> StudyRun:
    jobs = case.jobs()
    until_s = WARM_UP_S + case.question.duration_s + TIMEOUT_S
    tell = None if progress is None else (lambda now_s: progress(f"{name}, seed {case.seed}", now_s / until_s))
    world.run(jobs, chooser, until_s=until_s, progress=tell)
    measured = _measured(jobs)
    outcome = measure(measured)
    return StudyRun(summarise(outcome, measured, case.scenario), outcome, measured, world)


def _measured(jobs: Sequence[SimJob]) -> list[SimJob]:
    return [job for job in jobs if job.arrived_s >= WARM_UP_S]


def study(
    question: StudyConfig,
    trace: Sequence[TraceRequest] | None = None,
    *,
    progress: Progress | None = None,
    each: Callable[[str, StudyCase, StudyRun], None] | None = None,
) -> StudyResult:
    """Run everything. `each` sees every policy's run as it ends."""
    answer = StudyResult(question)
    for seed in range(1, question.seeds + 1):
        case = make_case(question, trace, seed=seed)
        oracle = run_oracle(case, progress=progress)
        answer.oracle.append(oracle.numbers)
        answer.bound.append(_with_gap(run_bound(case), oracle.numbers))
        for name in question.rankings:
            run = run_policy(case, name, progress=progress)
            answer.rankings.setdefault(name, []).append(_with_gap(run.numbers, oracle.numbers))
            if each is not None:
                each(name, case, run)
    return answer


def _with_gap(numbers: RunSummary, oracle: RunSummary) -> RunSummary:
    return replace(numbers, gap_to_oracle=numbers.e2e_mean / max(sys.float_info.min, oracle.e2e_mean) - 1.0)
