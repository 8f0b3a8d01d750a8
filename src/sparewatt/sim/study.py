"""A study: every policy, the oracle and the bound, on the same fleets and the same jobs, once per seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.ranking import BALANCED, RANKINGS
from sparewatt.sim.baselines import COSTS, Baseline
from sparewatt.sim.gateways import Gateways
from sparewatt.sim.oracle import Oracle
from sparewatt.sim.physics import SimJob
from sparewatt.sim.request import Request
from sparewatt.sim.scenario import Faults, Scenario, make_scenario
from sparewatt.sim.summary import TIMEOUT_S, Numbers, Outcome, bound_of, mean_of, outcome_of, summarise
from sparewatt.sim.workload import generate, make_jobs
from sparewatt.sim.world import Chooser, World

NAMES = (*RANKINGS, *COSTS)
WARM_UP_S = 60.0
ORACLE_WEIGHTS = (2.0, 4.0)
GATEWAY_ORDER = ("use", "eu", "usw", "jp", "in", "sg", "sa", "eu")
"""Where gateways stand: the first N. Eight are one in each region and a second one in the largest."""
GATEWAYS_MAX = len(GATEWAY_ORDER)

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is simulated. Times in seconds, rate in requests per second, seeds counted from 1."""

    nodes: int = 500
    rate: float = 135.0
    duration_s: float = 300.0
    gateways: int = 1
    heartbeat_s: float = HealthRules().heartbeat_s
    seeds: int = 2
    rankings: tuple[str, ...] = NAMES
    faults: Faults = field(default_factory=Faults)
    affinity: bool = True
    """Whether nodes tell that they keep prompts, and gateways remember where those were read."""
    prefix_ram_gb: float = 0.0
    """Main memory of every machine for prompts that it has read."""


@dataclass(frozen=True, slots=True)
class Case:
    """One fleet and its jobs, before anything has happened."""

    scenario: Scenario
    trace: Sequence[Request]
    regions: tuple[int, ...]
    question: Question
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
class Run:
    """One policy on one case: its numbers and what they were made from."""

    numbers: Numbers
    outcome: Outcome
    jobs: list[SimJob]
    world: World


@dataclass(slots=True)
class Answer:
    question: Question
    rankings: dict[str, list[Numbers]] = field(default_factory=dict)
    oracle: list[Numbers] = field(default_factory=list)
    bound: list[Numbers] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        garbage = self.question.faults.garbage > 0
        return {
            "policies": {name: mean_of(runs).as_dict(with_garbage=garbage) for name, runs in self.rankings.items()},
            "oracle": mean_of(self.oracle).as_dict(),
            "bound": mean_of(self.bound).as_dict(),
        }


def make_case(question: Question, trace: Sequence[Request] | None, *, seed: int) -> Case:
    scenario = make_scenario(question.nodes, seed=seed, faults=question.faults, prefix_ram_gb=question.prefix_ram_gb)
    requests = trace if trace is not None else generate(WARM_UP_S + question.duration_s + 1, seed=seed)
    regions = tuple(scenario.regions.index(name) for name in GATEWAY_ORDER[: question.gateways])
    return Case(scenario, requests, regions, question, seed)


def nearest_gateways(scenario: Scenario, regions: Sequence[int]) -> list[list[int]]:
    """For users of each region, the gateways they may be sent to: all that are equally near."""
    found = []
    for distances in scenario.rtt_s:
        nearest_s = min(distances[region] for region in regions)
        found.append([number for number, region in enumerate(regions) if distances[region] == nearest_s])
    return found


def make_chooser(name: str, world: World, *, heartbeat_s: float, seed: int, affinity: bool = True) -> Chooser:
    if name in COSTS:
        return Baseline(world, name, heartbeat_s=heartbeat_s, seed=seed)
    return Gateways(world, RANKINGS[name], heartbeat_s=heartbeat_s, seed=seed, affinity=affinity)


def run_policy(case: Case, name: str, *, progress: Progress | None = None) -> Run:
    world = case.world()
    question = case.question
    chooser = make_chooser(name, world, heartbeat_s=question.heartbeat_s, seed=case.seed, affinity=question.affinity)
    return _run(case, world, chooser, name, progress)


def run_oracle(case: Case, *, progress: Progress | None = None) -> Run:
    """The better of the two weights, by mean completion time."""
    runs = []
    for weight in ORACLE_WEIGHTS:
        world = case.world()
        chooser = Oracle(world, others=weight, usd_weight=BALANCED.usd_weight or 0.0)
        runs.append(_run(case, world, chooser, "oracle", progress))
    return min(runs, key=lambda run: run.numbers.e2e_mean)


def run_bound(case: Case) -> Numbers:
    world, jobs = case.world(), _measured(case.jobs())
    sites = range(len(case.scenario.sites))
    rtt_s = [np.array([world.rtt_s(gateway, site) for site in sites]) for gateway in range(len(case.regions))]
    return summarise(bound_of(case.scenario, jobs, rtt_s), jobs, case.scenario)


def _run(case: Case, world: World, chooser: Chooser, name: str, progress: Progress | None) -> Run:
    jobs = case.jobs()
    until_s = WARM_UP_S + case.question.duration_s + TIMEOUT_S
    tell = None if progress is None else (lambda now_s: progress(f"{name}, seed {case.seed}", now_s / until_s))
    world.run(jobs, chooser, until_s=until_s, progress=tell)
    measured = _measured(jobs)
    outcome = outcome_of(measured)
    return Run(summarise(outcome, measured, case.scenario), outcome, measured, world)


def _measured(jobs: Sequence[SimJob]) -> list[SimJob]:
    return [job for job in jobs if job.arrived_s >= WARM_UP_S]


def study(
    question: Question,
    trace: Sequence[Request] | None = None,
    *,
    progress: Progress | None = None,
    each: Callable[[str, Case, Run], None] | None = None,
) -> Answer:
    """Run everything. `each` sees every policy's run as it ends."""
    answer = Answer(question)
    for seed in range(1, question.seeds + 1):
        case = make_case(question, trace, seed=seed)
        oracle = run_oracle(case, progress=progress)
        answer.oracle.append(oracle.numbers)
        answer.bound.append(_beside(run_bound(case), oracle.numbers))
        for name in question.rankings:
            run = run_policy(case, name, progress=progress)
            answer.rankings.setdefault(name, []).append(_beside(run.numbers, oracle.numbers))
            if each is not None:
                each(name, case, run)
    return answer


def _beside(numbers: Numbers, oracle: Numbers) -> Numbers:
    return replace(numbers, gap_to_oracle=numbers.e2e_mean / max(sys.float_info.min, oracle.e2e_mean) - 1.0)
