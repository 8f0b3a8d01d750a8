"""Statistics of a run: latencies, costs, earnings, and the lower bound. An unfinished job counts as a time-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.fleet.physics import Floats, PrefillColumns
from sparewatt.sim.scenario import Scenario, price_table
from sparewatt.sim.traffic import SimJob

TIMEOUT_S, FIRST_TOKEN_TIMEOUT_S = 300.0, 180.0
SLO_FIRST_S, SLO_PROMPT_TPS, SLO_PER_TOKEN_S = 2.0, 4000.0, 0.1


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Times in seconds; slo, failed, warm_hit, gini and gap_to_oracle as fractions.

    Also as fractions of the jobs: those that were answered with garbage, checks, and jobs of which an attempt failed.
    """

    ttft_p50: float
    ttft_p99: float
    e2e_mean: float
    e2e_p50: float
    e2e_p95: float
    e2e_p99: float
    slo: float
    failed: float
    usd_per_mtok: float
    warm_hit: float
    gini: float
    gap_to_oracle: float = 0.0
    garbage_answers: float = 0.0
    checked: float = 0.0
    retried: float = 0.0

    def as_dict(self, *, with_garbage: bool = False) -> dict[str, float]:
        values = {name: round(value, 6) for name, value in asdict(self).items()}
        if not with_garbage:
            del values["garbage_answers"]
        return values


class RunMeasurements(NamedTuple):
    """Of the measured jobs, one entry each; `site` is -1 for an unfinished job."""

    ttft_s: Floats
    e2e_s: Floats
    is_warm: NDArray[np.bool_]
    site: NDArray[np.int64]


def measure(jobs: Sequence[SimJob]) -> RunMeasurements:
    """A nonsense answer is paid for, but its latency counts as a time-out."""

    def latency_s(job: SimJob, end_s: float | None, timeout_s: float) -> float:
        return timeout_s if end_s is None or job.is_nonsense else min(timeout_s, end_s - job.arrived_s + job.user_rtt_s)

    return RunMeasurements(
        np.array([latency_s(job, job.first_token_s, FIRST_TOKEN_TIMEOUT_S) for job in jobs]),
        np.array([latency_s(job, job.finished_s, TIMEOUT_S) for job in jobs]),
        np.array([job.was_warm for job in jobs]),
        np.array([-1 if job.finished_s is None or job.site is None else job.site for job in jobs]),
    )


def lower_bound(scenario: Scenario, jobs: Sequence[SimJob], rtt_s: Sequence[Floats]) -> RunMeasurements:
    """Every job alone on its best warm machine, with full prefill. Only a prefix cache can be faster."""
    bandwidth = np.array([site.bandwidth for site in scenario.sites])
    alone_s = [np.array([site.alone_step_s(model) for site in scenario.sites]) for model in scenario.models]
    prefills = [PrefillColumns.of([site.prefill(model) for site in scenario.sites]) for model in scenario.models]
    sites_by_model = [_warm_sites(scenario, model.number) for model in scenario.models]
    rows: list[tuple[float, float, int]] = []
    for job in jobs:
        sites = sites_by_model[job.model.number]
        if not sites.size:
            rows.append((FIRST_TOKEN_TIMEOUT_S, TIMEOUT_S, -1))
            continue
        prefill = prefills[job.model.number].seconds(job.prompt_tokens)[sites]
        ttft = job.user_rtt_s + rtt_s[job.gateway][sites] + prefill
        step = alone_s[job.model.number][sites] + job.kv_read_bytes / bandwidth[sites]
        e2e = ttft + job.output_tokens * step
        best = int(np.argmin(e2e))
        rows.append((float(ttft[best]), float(e2e[best]), int(sites[best])))
    ttft_s, e2e_s, site = (np.array([row[column] for row in rows]) for column in range(3))
    return RunMeasurements(ttft_s, e2e_s, np.ones(len(jobs), bool), site)


class HostileFigures(NamedTuple):
    """What hostile nodes cost the others."""

    real_mean_s: float
    """Mean completion time of the jobs that got a real answer."""
    nonsense: float
    """The share of jobs that were answered with nonsense."""
    outage_s: float
    """The longest time in which jobs of one model came and none of them was ever answered."""


def hostile_figures(measurements: RunMeasurements, jobs: Sequence[SimJob]) -> HostileFigures:
    is_real = np.array([job.finished_s is not None and not job.is_nonsense for job in jobs])
    real_mean_s = float(measurements.e2e_s[is_real].mean()) if is_real.any() else TIMEOUT_S
    return HostileFigures(real_mean_s, float(np.mean([job.is_nonsense for job in jobs])), _outage_s(jobs))


def _outage_s(jobs: Sequence[SimJob]) -> float:
    longest_s, began_s = 0.0, dict[int, float]()
    for job in sorted(jobs, key=lambda job: job.arrived_s):
        if job.finished_s is not None:
            began_s.pop(job.model.number, None)
        else:
            longest_s = max(longest_s, job.arrived_s - began_s.setdefault(job.model.number, job.arrived_s))
    return longest_s


def _warm_sites(scenario: Scenario, model: int) -> NDArray[np.intp]:
    """Honest machines that start with the model warm; if there is none, those that it fits."""
    honest = [site for site in scenario.sites if not site.is_garbage]
    warm = [site.number for site in honest if model in site.warm]
    fitting = [site.number for site in honest if site.fits(scenario.models[model])]
    return np.array(warm or fitting, np.intp)


def summarise(measurements: RunMeasurements, jobs: Sequence[SimJob], scenario: Scenario) -> RunSummary:
    ttft_s, e2e_s, is_warm, site = measurements
    prompt = np.array([job.prompt_tokens for job in jobs], float)
    output = np.array([job.output_tokens for job in jobs], float)
    done = site >= 0
    paid = _paid(jobs, prompt, output, site, scenario)
    earned: Floats = np.bincount(site[done], paid[done], len(scenario.sites)).astype(np.float64)
    in_time = ttft_s <= SLO_FIRST_S + prompt / SLO_PROMPT_TPS
    fluent = e2e_s - ttft_s <= SLO_PER_TOKEN_S * output
    garbage = np.array([one.is_garbage for one in scenario.sites])
    tokens = float(np.sum((prompt + output)[done]))
    return RunSummary(
        ttft_p50=float(np.median(ttft_s)),
        ttft_p99=float(np.percentile(ttft_s, 99)),
        e2e_mean=float(e2e_s.mean()),
        e2e_p50=float(np.median(e2e_s)),
        e2e_p95=float(np.percentile(e2e_s, 95)),
        e2e_p99=float(np.percentile(e2e_s, 99)),
        slo=float(np.mean(done & in_time & fluent)),
        failed=float(np.mean(~done | (e2e_s >= TIMEOUT_S))),
        usd_per_mtok=float(paid[done].sum()) / tokens * 1e6 if tokens else 0.0,
        warm_hit=float(is_warm.mean()),
        gini=gini(earned),
        garbage_answers=float(np.mean(done & garbage[site])),
        retried=float(np.mean([job.was_retried for job in jobs])),
    )


def _paid(
    jobs: Sequence[SimJob], prompt: Floats, output: Floats, site: NDArray[np.int64], scenario: Scenario
) -> Floats:
    """$ per job, at the prices of the node that answered."""
    price, model = price_table(scenario), np.array([job.model.number for job in jobs])
    usd = price.prompt[model, site] * prompt + price.completion[model, site] * output
    paid: Floats = np.where(site >= 0, usd, 0.0)
    return paid


def gini(earned: Floats) -> float:
    """The Gini coefficient: 0 if all nodes earn the same, near 1 if one earns everything."""
    total = float(earned.sum())
    if total <= 0:
        return 0.0
    ranks = np.arange(1, earned.size + 1)
    return float(2 * np.sum(ranks * np.sort(earned)) / (earned.size * total) - (earned.size + 1) / earned.size)


def mean_of(runs: Sequence[RunSummary]) -> RunSummary:
    """The mean of each number over seeds."""
    return RunSummary(*(float(np.mean([getattr(run, item.name) for run in runs])) for item in fields(RunSummary)))
