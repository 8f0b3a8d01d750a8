"""A study: every scheduler, the oracle and the lower bound, on the same fleets and the same jobs, once per seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparewatt.inference.matcher.formula import BALANCED, RANKINGS
from sparewatt.inference.matcher.node_row import HealthRules
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
from sparewatt.sim.schedulers.oracle import Oracle, Secrets
from sparewatt.sim.traffic import SimJob, TraceRequest, generate_trace, make_jobs
from sparewatt.sim.world import Scheduler, World

SCHEDULERS = (*RANKINGS, *COSTS)
WARM_UP_S = 60.0
ORACLE_VARIANTS = ((2.0, False), (1.0, True), (2.0, True))
"""The weight of others' time, and whether the best candidates are played to the end."""
GATEWAY_ORDER = ("use", "eu", "usw", "jp", "in", "sg", "sa", "eu")
"""N gateways are in the first N of these regions. Eight are one in each region, and a second one in the largest."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """`rate` is in requests per second. Seeds are 1, 2, …, `seeds`."""

    nodes: int = 500
    rate: float = 135.0
    duration_s: float = 300.0
    gateways: int = 1
    heartbeat_s: float = HealthRules().heartbeat_s
    seeds: int = 2
    schedulers: tuple[str, ...] = SCHEDULERS
    faults: FaultRates = field(default_factory=FaultRates)
    affinity: bool = True
    """Whether nodes report their prefix caches, and gateways route by them."""
    checks: bool = True
    """Whether answers are checked, as gateways do."""
    prefix_ram_gb: float = 0.0
    """Main memory of every machine for its prefix cache."""


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One fleet and its jobs, before a run."""

    scenario: Scenario
    trace: Sequence[TraceRequest]
    regions: tuple[int, ...]
    config: StudyConfig
    seed: int

    def jobs(self) -> list[SimJob]:
        """New ones at every call, since a run changes them."""
        span_s = WARM_UP_S + self.config.duration_s
        jobs = make_jobs(self.trace, self.scenario, rate=self.config.rate, duration_s=span_s, seed=self.seed)
        nearest = nearest_gateways(self.scenario, self.regions)
        for job in jobs:
            gateways = nearest[job.region]
            job.gateway = gateways[job.number % len(gateways)]
            job.user_rtt_s = self.scenario.rtt_s[job.region][self.regions[job.gateway]]
        return jobs

    def world(self) -> World:
        return World(self.scenario, seed=self.seed, gateway_regions=self.regions)


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One scheduler on one case. Only jobs after the warm-up are measured."""

    summary: RunSummary
    measurements: RunMeasurements
    jobs: list[SimJob]
    world: World


@dataclass(slots=True)
class StudyResult:
    config: StudyConfig
    schedulers: dict[str, list[RunSummary]] = field(default_factory=dict)
    oracle: list[RunSummary] = field(default_factory=list)
    bound: list[RunSummary] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        garbage = self.config.faults.garbage > 0
        return {
            "policies": {name: mean_of(runs).as_dict(with_garbage=garbage) for name, runs in self.schedulers.items()},
            "oracle": mean_of(self.oracle).as_dict(),
            "bound": mean_of(self.bound).as_dict(),
        }


def make_case(config: StudyConfig, trace: Sequence[TraceRequest] | None, *, seed: int) -> StudyCase:
    scenario = make_scenario(config.nodes, seed=seed, faults=config.faults, prefix_ram_gb=config.prefix_ram_gb)
    requests = trace if trace is not None else generate_trace(WARM_UP_S + config.duration_s + 1, seed=seed)
    regions = tuple(scenario.regions.index(name) for name in GATEWAY_ORDER[: config.gateways])
    return StudyCase(scenario, requests, regions, config, seed)


def nearest_gateways(scenario: Scenario, regions: Sequence[int]) -> list[list[int]]:
    """By region of the user: the gateways with the smallest round trip."""
    nearest = []
    for rtt_s in scenario.rtt_s:
        nearest_s = min(rtt_s[region] for region in regions)
        nearest.append([number for number, region in enumerate(regions) if rtt_s[region] == nearest_s])
    return nearest


def make_scheduler(
    name: str, world: World, *, heartbeat_s: float, seed: int, affinity: bool = True, checks: bool = False
) -> Scheduler:
    if name in COSTS:
        return Baseline(world, name, heartbeat_s=heartbeat_s, seed=seed)
    return SimGateways(world, RANKINGS[name], heartbeat_s=heartbeat_s, seed=seed, affinity=affinity, checks=checks)


def run_scheduler(case: StudyCase, name: str, *, progress: Progress | None = None) -> StudyRun:
    world, config = case.world(), case.config
    scheduler = make_scheduler(
        name,
        world,
        heartbeat_s=config.heartbeat_s,
        seed=case.seed,
        affinity=config.affinity,
        checks=config.checks and config.faults.garbage > 0,
    )
    run = _run(case, world, scheduler, name, progress)
    return replace(run, summary=replace(run.summary, checked=_checked_share(scheduler, run.jobs)))


def _checked_share(scheduler: Scheduler, jobs: Sequence[SimJob]) -> float:
    """Checks begun after the warm-up, for each job that came after it."""
    checks = scheduler.checks if isinstance(scheduler, SimGateways) else None
    if checks is None or not jobs:
        return 0.0
    last_s = max(job.arrived_s for job in jobs)
    return sum(WARM_UP_S <= begun_s <= last_s for begun_s in checks.begun_s) / len(jobs)


def run_oracle(case: StudyCase, *, secrets: Secrets | None = None, progress: Progress | None = None) -> StudyRun:
    """The best of its variants, by mean completion time."""
    runs = []
    for weight, roll_outs in ORACLE_VARIANTS:
        world, usd_weight = case.world(), BALANCED.usd_weight or 0.0
        oracle = Oracle(world, slowdown_weight=weight, usd_weight=usd_weight, roll_outs=roll_outs, secrets=secrets)
        runs.append(_run(case, world, oracle, "oracle", progress))
    return min(runs, key=lambda run: run.summary.e2e_mean)


def run_bound(case: StudyCase) -> RunSummary:
    world, jobs = case.world(), _measured(case.jobs())
    sites = range(len(case.scenario.sites))
    rtt_s = [np.array([world.rtt_s(gateway, site) for site in sites]) for gateway in range(len(case.regions))]
    return summarise(lower_bound(case.scenario, jobs, rtt_s), jobs, case.scenario)


def _run(case: StudyCase, world: World, scheduler: Scheduler, name: str, progress: Progress | None) -> StudyRun:
    jobs = case.jobs()
    until_s = WARM_UP_S + case.config.duration_s + TIMEOUT_S
    on_time = None if progress is None else (lambda now_s: progress(f"{name}, seed {case.seed}", now_s / until_s))
    world.run(jobs, scheduler, until_s=until_s, progress=on_time)
    measured = _measured(jobs)
    measurements = measure(measured)
    return StudyRun(summarise(measurements, measured, case.scenario), measurements, measured, world)


def _measured(jobs: Sequence[SimJob]) -> list[SimJob]:
    return [job for job in jobs if job.arrived_s >= WARM_UP_S]


def study(
    config: StudyConfig,
    trace: Sequence[TraceRequest] | None = None,
    *,
    progress: Progress | None = None,
    each: Callable[[str, StudyCase, StudyRun], None] | None = None,
) -> StudyResult:
    """Run everything. `each` is called after the run of each scheduler."""
    result = StudyResult(config)
    for seed in range(1, config.seeds + 1):
        case = make_case(config, trace, seed=seed)
        oracle = run_oracle(case, progress=progress).summary
        result.oracle.append(oracle)
        result.bound.append(_with_gap(run_bound(case), oracle))
        for name in config.schedulers:
            run = run_scheduler(case, name, progress=progress)
            result.schedulers.setdefault(name, []).append(_with_gap(run.summary, oracle))
            if each is not None:
                each(name, case, run)
    return result


def _with_gap(summary: RunSummary, oracle: RunSummary) -> RunSummary:
    return replace(summary, gap_to_oracle=summary.e2e_mean / max(sys.float_info.min, oracle.e2e_mean) - 1.0)
