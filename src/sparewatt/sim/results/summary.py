"""Numbers of a run: what users waited, what nodes earned. A job without an end counts as a time-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.price_table import price_table
from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S, Scenario

Floats = NDArray[np.float64]
TIMEOUT_S, FIRST_TOKEN_TIMEOUT_S = 300.0, 180.0
SLO_FIRST_S, SLO_PROMPT_TPS, SLO_PER_TOKEN_S = 2.0, 4000.0, 0.1


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Times in seconds; slo, failed, warm_hit, gini and gap_to_oracle as fractions."""

    ttft_p50: float
    ttft_p99: float
    e2e_mean: float
    e2e_p50: float
    e2e_p99: float
    slo: float
    failed: float
    usd_per_mtok: float
    warm_hit: float
    gini: float
    gap_to_oracle: float = 0.0
    garbage: float = 0.0

    def as_dict(self, *, with_garbage: bool = False) -> dict[str, float]:
        found = {name: round(value, 6) for name, value in asdict(self).items()}
        if not with_garbage:
            del found["garbage"]
        return found


class RunMeasurements(NamedTuple):
    """What became of the measured jobs, one entry each; `site` is -1 where nobody answered."""

    ttft_s: Floats
    e2e_s: Floats
    is_warm: NDArray[np.bool_]
    site: NDArray[np.int64]


def measure(jobs: Sequence[SimJob]) -> RunMeasurements:
    """Nonsense is paid for, and to the user it is as good as no answer."""

    def waited(job: SimJob, end_s: float | None, most_s: float) -> float:
        return most_s if end_s is None or job.is_nonsense else min(most_s, end_s - job.arrived_s + job.user_rtt_s)

    return RunMeasurements(
        np.array([waited(job, job.first_token_s, FIRST_TOKEN_TIMEOUT_S) for job in jobs]),
        np.array([waited(job, job.finished_s, TIMEOUT_S) for job in jobs]),
        np.array([job.was_warm for job in jobs]),
        np.array([-1 if job.finished_s is None or job.site is None else job.site for job in jobs]),
    )


def lower_bound(scenario: Scenario, jobs: Sequence[SimJob], rtt_s: Sequence[Floats]) -> RunMeasurements:
    """Every job alone on its best warm machine, its prompt read whole: without kept prompts nobody can do better."""
    flops = np.array([site.flops for site in scenario.sites])
    bandwidth = np.array([site.bandwidth for site in scenario.sites])
    warm = [_holders(scenario, model.number) for model in scenario.models]
    ttft, e2e, where = [], [], []
    for job in jobs:
        places = warm[job.model.number]
        if not places.size:
            ttft.append(FIRST_TOKEN_TIMEOUT_S)
            e2e.append(TIMEOUT_S)
            where.append(-1)
            continue
        reading = 2 * job.model.active_params * job.prompt_tokens / flops[places]
        first = job.user_rtt_s + rtt_s[job.gateway][places] + reading
        step = (job.model.weights_bytes + job.kv_read_bytes) / bandwidth[places] + STEP_FIXED_S + STEP_PER_JOB_S
        whole = first + job.output_tokens * step
        best = int(np.argmin(whole))
        ttft.append(float(first[best]))
        e2e.append(float(whole[best]))
        where.append(int(places[best]))
    return RunMeasurements(np.array(ttft), np.array(e2e), np.ones(len(jobs), bool), np.array(where))


def _holders(scenario: Scenario, model: int) -> NDArray[np.intp]:
    """Honest machines that have the model warm; if there is none at first, those that could."""
    honest = [site for site in scenario.sites if not site.is_garbage]
    warm = [site.number for site in honest if model in site.warm]
    able = [site.number for site in honest if site.fits(scenario.models[model])]
    return np.array(warm or able, np.intp)


def summarise(outcome: RunMeasurements, jobs: Sequence[SimJob], scenario: Scenario) -> RunSummary:
    ttft_s, e2e_s, is_warm, site = outcome
    prompt = np.array([job.prompt_tokens for job in jobs], float)
    output = np.array([job.output_tokens for job in jobs], float)
    done = site >= 0
    paid = _paid(jobs, site, scenario)
    earned: Floats = np.bincount(site[done], paid[done], len(scenario.sites)).astype(np.float64)
    in_time = ttft_s <= SLO_FIRST_S + prompt / SLO_PROMPT_TPS
    fluent = e2e_s - ttft_s <= SLO_PER_TOKEN_S * output
    garbage = np.array([place.is_garbage for place in scenario.sites])
    tokens = float(np.sum((prompt + output)[done]))
    return RunSummary(
        ttft_p50=float(np.median(ttft_s)),
        ttft_p99=float(np.percentile(ttft_s, 99)),
        e2e_mean=float(e2e_s.mean()),
        e2e_p50=float(np.median(e2e_s)),
        e2e_p99=float(np.percentile(e2e_s, 99)),
        slo=float(np.mean(done & in_time & fluent)),
        failed=float(np.mean(~done | (e2e_s >= TIMEOUT_S))),
        usd_per_mtok=float(paid[done].sum()) / tokens * 1e6 if tokens else 0.0,
        warm_hit=float(is_warm.mean()),
        gini=gini(earned),
        garbage=float(np.mean(done & garbage[site])),
    )


def _paid(jobs: Sequence[SimJob], site: NDArray[np.int64], scenario: Scenario) -> Floats:
    """$ per job, at the price of the node that answered."""
    price = price_table(scenario)
    models = np.array([job.model.number for job in jobs])
    prompt, output = np.array([job.prompt_tokens for job in jobs]), np.array([job.output_tokens for job in jobs])
    asked = price.prompt[models, site] * prompt + price.completion[models, site] * output
    paid: Floats = np.where(site >= 0, asked, 0.0)
    return paid


def gini(earned: Floats) -> float:
    """0 when all nodes earn alike, near 1 when one earns all."""
    total = float(earned.sum())
    if total <= 0:
        return 0.0
    ranks = np.arange(1, earned.size + 1)
    return float(2 * np.sum(ranks * np.sort(earned)) / (earned.size * total) - (earned.size + 1) / earned.size)


def mean_of(runs: Sequence[RunSummary]) -> RunSummary:
    """Each number's mean over seeds."""
    return RunSummary(*(float(np.mean([getattr(run, item.name) for run in runs])) for item in fields(RunSummary)))
