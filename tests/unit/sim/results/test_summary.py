from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from sparewatt.sim.results.plot import draw
from sparewatt.sim.results.spot_comparison import all_models, network_row, spot_rows
from sparewatt.sim.results.summary import HostileFigures, gini, hostile_figures, mean_of, measure, summarise
from sparewatt.sim.study import StudyConfig, StudyResult, make_case, run_scheduler, study
from sparewatt.sim.traffic import SimJob
from tests.unit.sim.conftest import make_job

CONFIG = StudyConfig(nodes=20, rate=2.0, duration_s=10.0, seeds=2, schedulers=("balanced", "least-loaded"))
KEYS = [
    "ttft_p50", "ttft_p99", "e2e_mean", "e2e_p50", "e2e_p95", "e2e_p99", "slo", "failed", "usd_per_mtok", "warm_hit",
    "gini", "gap_to_oracle", "checked", "retried",
]  # fmt: skip


@pytest.fixture(scope="module")
def result() -> StudyResult:
    return study(CONFIG)


def test_a_job_without_an_end_counts_as_a_time_out() -> None:
    case = make_case(CONFIG, None, seed=1)
    done, never = make_job(1, model=case.scenario.models[0]), make_job(2, model=case.scenario.models[0])
    done.site, done.first_token_s, done.finished_s = 0, 1.0, 2.0
    numbers = summarise(measure([done, never]), [done, never], case.scenario)
    assert numbers.e2e_mean == (2.0 + 300.0) / 2
    assert numbers.failed == 0.5
    assert numbers.slo == 0.5


def test_gini_is_zero_for_equals_and_near_one_for_a_winner() -> None:
    assert gini(np.ones(10)) == pytest.approx(0.0)
    assert gini(np.array([0.0] * 99 + [1.0])) == pytest.approx(0.99)
    assert gini(np.zeros(5)) == 0.0


def test_the_result_has_the_documented_shape(result: StudyResult) -> None:
    found = result.as_dict()
    assert list(found) == ["policies", "oracle", "bound"]
    policies, oracle, bound = found["policies"], found["oracle"], found["bound"]
    assert isinstance(policies, dict)
    assert list(policies) == list(CONFIG.schedulers)
    for numbers in (*policies.values(), oracle, bound):
        assert list(numbers) == KEYS
    assert oracle["gap_to_oracle"] == 0.0  # type: ignore[index]


def test_numbers_are_means_over_seeds(result: StudyResult) -> None:
    runs = result.schedulers["balanced"]
    assert len(runs) == 2
    assert mean_of(runs).e2e_mean == pytest.approx((runs[0].e2e_mean + runs[1].e2e_mean) / 2)


def test_the_plot_shows_every_scheduler_the_oracle_and_the_bound(result: StudyResult) -> None:
    plot = draw(result)
    ET.fromstring(plot)  # noqa: S314 (our own plot)
    for words in ("balanced", "least-loaded", "oracle", "bound"):
        assert words in plot


def test_renting_whole_cards_is_never_cheaper_than_full_ones() -> None:
    case = make_case(replace(CONFIG, nodes=60), None, seed=1)
    run = run_scheduler(case, "balanced")
    rows = spot_rows(run.jobs, duration_s=CONFIG.duration_s)
    assert all(0 < row.full_usd <= row.whole_usd for row in rows)
    full, whole = all_models(rows)
    assert 0 < full <= whole
    row = network_row(case, run)
    assert row.usd > 0
    assert 0 < row.round_trip_s[0] <= row.round_trip_s[1]


# hostile nodes


def figures_of(*jobs: SimJob) -> HostileFigures:
    return hostile_figures(measure(jobs), jobs)


def test_an_outage_is_the_longest_time_without_an_answer_to_any_job_of_a_model() -> None:
    model = make_case(CONFIG, None, seed=1).scenario.models[0]
    jobs = [make_job(number, model=model) for number in range(6)]
    for number, job in enumerate(jobs):
        job.arrived_s = 10.0 * number
        job.finished_s = 10.0 * number + 2.0 if number in {0, 4, 5} else None
    assert figures_of(*jobs).outage_s == 20.0
    assert figures_of(jobs[0], jobs[4]).outage_s == 0.0


def test_nonsense_is_no_real_answer() -> None:
    model = make_case(CONFIG, None, seed=1).scenario.models[0]
    good, bad = make_job(1, model=model), make_job(2, model=model)
    good.arrived_s, good.finished_s = 0.0, 4.0
    bad.arrived_s, bad.finished_s, bad.is_nonsense = 0.0, 0.1, True
    found = figures_of(good, bad)
    assert found.real_mean_s == pytest.approx(4.0 + good.user_rtt_s)
    assert found.nonsense == 0.5
