from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.sim.schedulers.baselines import COSTS, Baseline
from sparewatt.sim.study import StudyCase, StudyConfig, make_case
from sparewatt.sim.traffic import SimJob

LARGEST, MIDDLE = "70b-fp8", "70b-int4"


def make(*, cold: str | None = None) -> StudyCase:
    """Two hundred cards, of which two fit the largest model; `cold` is a model that none has loaded."""
    case = make_case(StudyConfig(nodes=200, rate=3.0, duration_s=5.0), None, seed=1)
    numbers = {model.number for model in case.scenario.models if model.name == cold}
    sites = tuple(replace(site, warm=tuple(set(site.warm) - numbers)) for site in case.scenario.sites)
    return replace(case, scenario=replace(case.scenario, sites=sites))


def job_for(case: StudyCase, model: str, number: int = 0) -> SimJob:
    found = next(m for m in case.scenario.models if m.name == model)
    return SimJob(number, found, arrived_s=0.0, prompt_tokens=800, output_tokens=100, region=0)


def holders(case: StudyCase, model: str) -> set[int]:
    number = next(m.number for m in case.scenario.models if m.name == model)
    return {site.number for site in case.scenario.sites if number in site.warm}


def baseline(case: StudyCase, name: str) -> Baseline:
    return Baseline(case.world(), name, heartbeat_s=5.0, seed=1)


@pytest.mark.parametrize("name", COSTS)
def test_a_cold_model_is_loaded_on_one_node_however_many_jobs_need_it(name: str) -> None:
    case = make(cold=LARGEST)
    assert not holders(case, LARGEST)
    scheduler = baseline(case, name)
    assert len({scheduler.choose(job_for(case, LARGEST, number), 1.0) for number in range(50)}) == 1


@pytest.mark.parametrize("name", COSTS)
def test_full_nodes_with_the_model_warm_precede_idle_ones_without_it(name: str) -> None:
    case = make()
    warm = holders(case, MIDDLE)
    assert warm
    scheduler = baseline(case, name)
    chosen = [scheduler.choose(job_for(case, MIDDLE, number), 1.0) for number in range(len(warm) * LINK_JOBS_MAX + 10)]
    assert set(chosen) == warm


@pytest.mark.parametrize("name", COSTS)
def test_a_job_that_failed_on_every_warm_node_is_sent_to_one_of_them_again(name: str) -> None:
    case = make()
    warm = holders(case, MIDDLE)
    scheduler = baseline(case, name)
    job = job_for(case, MIDDLE)
    job.tried = warm - {min(warm)}
    assert scheduler.choose(job, 1.0) == min(warm)
    again = job_for(case, MIDDLE, number=1)
    again.tried = set(warm)
    assert scheduler.choose(again, 1.0) in warm
