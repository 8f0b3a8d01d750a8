from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from sparewatt.core.limits import REFUSALS_MAX
from sparewatt.inference.matcher.newcomers import TRIALS_AHEAD
from sparewatt.sim.scenario import FaultRates, Hostility
from sparewatt.sim.study import (
    SCHEDULERS,
    StudyCase,
    StudyConfig,
    StudyRun,
    make_case,
    run_oracle,
    run_scheduler,
    study,
)
from sparewatt.sim.world import SLEEPER_JOBS

SMALL = StudyConfig(nodes=24, rate=2.0, duration_s=10.0, seeds=1)


def make(config: StudyConfig = SMALL, **changes: object) -> StudyCase:
    return make_case(replace(config, **changes), None, seed=1)  # type: ignore[arg-type]


def digest(run: StudyRun) -> str:
    rows = [(job.number, job.site, job.attempts, job.refusals, job.first_token_s, job.finished_s) for job in run.jobs]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_accepted_job_leaves_its_machine_exactly_once(name: str) -> None:
    case = make(rate=5.0, faults=FaultRates(flaky=0.3, mtbf_s=120.0))
    run = run_scheduler(case, name)
    seen = run.world.outcomes
    there = sum(machine.jobs for machine in run.world.machines)
    assert seen["failed"] + seen["lost"] > 0
    assert seen["accepted"] == seen["finished"] + seen["failed"] + seen["lost"] + there


@pytest.mark.parametrize("name", ["balanced", "p2c"])
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    one, other = (digest(run_scheduler(make(nodes=8, gateways=2, rate=0.5), name)) for _ in range(2))
    assert one == other


def test_the_oracle_is_the_same_twice_and_another_seed_is_not() -> None:
    assert digest(run_oracle(make())) == digest(run_oracle(make()))
    other = make_case(SMALL, None, seed=2)
    assert digest(run_oracle(make())) != digest(run_oracle(other))


def test_no_job_ends_before_it_could_and_none_is_dropped() -> None:
    case = make()
    run = run_scheduler(case, "balanced")
    assert len(run.measurements.e2e_s) == len([job for job in case.jobs() if job.arrived_s >= 60.0])
    for job in run.jobs:
        assert job.first_token_s is not None
        assert job.finished_s is not None
        assert job.arrived_s < job.first_token_s < job.finished_s


def test_nodes_refuse_late_jobs_and_never_more_often_than_allowed() -> None:
    run = run_scheduler(make(nodes=12, rate=10.0, gateways=2, heartbeat_s=10.0, duration_s=2.0), "balanced")
    assert run.world.outcomes["refused"] > 0
    assert max(job.refusals for job in run.jobs) <= REFUSALS_MAX


def test_jobs_of_baselines_have_no_promise_and_are_never_refused() -> None:
    run = run_scheduler(make(nodes=8, rate=7.0, duration_s=2.0), "least-loaded")
    assert run.world.outcomes["refused"] == 0


def test_no_scheduler_beats_the_bound() -> None:
    result = study(replace(SMALL, schedulers=("balanced", "p2c")))
    bound = result.bound[0]
    assert bound.e2e_mean <= result.oracle[0].e2e_mean
    assert all(bound.e2e_mean <= runs[0].e2e_mean for runs in result.schedulers.values())


def test_the_oracle_avoids_garbage_and_others_do_not() -> None:
    faults = FaultRates(garbage=0.3)
    assert run_oracle(make(faults=faults)).summary.garbage_answers == 0.0
    assert run_scheduler(make(faults=faults), "balanced").summary.garbage_answers > 0.0


def test_malformed_answers_fail_the_attempt_and_their_nodes_are_avoided() -> None:
    run = run_scheduler(make(faults=FaultRates(garbage=0.5), duration_s=30.0), "balanced")
    malformed = {site.number for site in run.world.scenario.sites if site.is_malformed}
    assert malformed
    assert run.world.outcomes["failed"] >= len(malformed) / 2
    assert not any(job.site in malformed for job in run.jobs if job.finished_s is not None)


def test_nonsense_passes_and_counts_as_no_answer() -> None:
    case = make(faults=FaultRates(garbage=0.5))
    numbers, honest = run_scheduler(case, "balanced").summary, run_scheduler(make(), "balanced").summary
    assert numbers.garbage_answers > 0.0
    assert numbers.failed >= numbers.garbage_answers
    assert numbers.slo <= 1.0 - numbers.garbage_answers
    assert numbers.e2e_mean >= honest.e2e_mean + 250.0 * numbers.garbage_answers


def test_faults_change_nothing_else_about_the_fleet() -> None:
    honest, spoilt = make().scenario.sites, make(faults=FaultRates(liars=0.5)).scenario.sites
    assert sum(site.claims > 1 for site in spoilt) == 12
    assert all(site.is_known == (site.claims == 1.0) for site in spoilt), "who lies has not been timed yet"
    assert [replace(site, claims=1.0, is_known=True) for site in spoilt] == list(honest)


# hostile nodes


def hostile() -> StudyRun:
    return run_scheduler(make(faults=FaultRates(hostile=0.5, mtbf_s=1e9)), "balanced")


def test_hostile_nodes_get_a_small_share_and_every_job_is_answered() -> None:
    run = hostile()
    harmed = sum(run.world.outcomes[way.value] for way in (Hostility.REFUSES, Hostility.SILENT, Hostility.STALLS))
    assert 0 < harmed <= TRIALS_AHEAD * len(run.world.scenario.models)
    assert all(job.finished_s is not None for job in run.jobs)


def test_each_way_of_being_hostile_is_tried() -> None:
    sites = make(faults=FaultRates(hostile=1.0)).scenario.sites
    assert {site.hostility for site in sites} == set(Hostility)
    assert all(site.claims > 100 and site.usd_per_hour == 0.0 and not site.is_known for site in sites)


def test_a_sleeper_serves_before_it_refuses() -> None:
    case = make()
    world = case.world()
    site = next(iter(world.machines)).site.number
    world.scenario = replace(
        world.scenario, sites=tuple(replace(each, hostility=Hostility.SLEEPER) for each in world.scenario.sites)
    )
    ways = [world._hostility(site) for _ in range(SLEEPER_JOBS + 2)]
    assert ways == [None] * SLEEPER_JOBS + [Hostility.REFUSES] * 2


def test_who_is_absent_gets_no_job() -> None:
    run = run_scheduler(make(faults=FaultRates(absent=0.5, mtbf_s=1e9)), "balanced")
    absent = {site.number for site in run.world.scenario.sites if site.is_absent}
    assert len(absent) == 12
    assert not absent & {job.site for job in run.jobs}
