"""The network compared with cards rented at spot prices: $ per million tokens, and the latency that is added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparewatt.sim.fleet.physics import BATCHING
from sparewatt.sim.scenario import GB, PRICED_BATCH, SimGpu, SimModel, fits, read_fleet
from sparewatt.sim.study import StudyCase, StudyRun
from sparewatt.sim.traffic import SimJob

METHOD = (
    "Method: spot is, for each model, the card of the spot price table that serves this traffic cheapest (prefill at "
    "half its peak, eight answers decoded at a time), once as if always full and once in whole cards for the mean "
    "demand; the network is the price of the nodes that answered; round trip is gateway to node and back, waiting is "
    "the time to first token less the round trip and less the prefill on an idle node."
)


@dataclass(frozen=True, slots=True)
class SpotRow:
    """Renting for one model's traffic; $ per million tokens."""

    model: str
    card: str
    cards: int
    full_usd: float
    whole_usd: float
    tokens: int


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """A scheduler's run; times as median and 99th percentile in seconds."""

    usd: float
    round_trip_s: tuple[float, float]
    waiting_s: tuple[float, float]


def spot_rows(jobs: Sequence[SimJob], *, duration_s: float) -> list[SpotRow]:
    by_model: dict[int, list[SimJob]] = {}
    for job in jobs:
        by_model.setdefault(job.model.number, []).append(job)
    return [_cheapest(model_jobs, duration_s=duration_s) for _, model_jobs in sorted(by_model.items())]


def _cheapest(jobs: Sequence[SimJob], *, duration_s: float) -> SpotRow:
    model = jobs[0].model
    prompt, output = sum(job.prompt_tokens for job in jobs), sum(job.output_tokens for job in jobs)
    options = []
    for gpu in read_fleet():
        if fits(gpu, model):
            busy_s = busy_seconds(gpu, model, prompt, output)
            cards = max(1, math.ceil(busy_s / duration_s))
            options.append((cards * gpu.usd_per_hour, gpu.name, cards, busy_s * gpu.usd_per_hour))
    whole, name, cards, _ = min(options)
    per_mtok = 1e6 / 3600 / (prompt + output)
    full = min(option[3] for option in options)
    return SpotRow(model.name, name, cards, full * per_mtok, whole * duration_s * per_mtok, prompt + output)


def busy_seconds(gpu: SimGpu, model: SimModel, prompt_tokens: int, output_tokens: int) -> float:
    """How long one card works on so many tokens, at its nominal speed."""
    prefill_s = 2 * model.active_params * prompt_tokens / (BATCHING.flops_share * gpu.tflops * 1e12)
    step_s = model.weights_bytes / (BATCHING.bandwidth_share * gpu.bandwidth_gb_s * GB) + BATCHING.step_fixed_s
    return prefill_s + output_tokens * (step_s + BATCHING.step_per_job_s * PRICED_BATCH) / PRICED_BATCH


def all_models(rows: Sequence[SpotRow]) -> tuple[float, float]:
    """$ per million tokens of all models: on always full cards, and on whole cards."""
    tokens = sum(row.tokens for row in rows)
    return (
        sum(row.full_usd * row.tokens for row in rows) / tokens,
        sum(row.whole_usd * row.tokens for row in rows) / tokens,
    )


def network_row(case: StudyCase, run: StudyRun) -> NetworkRow:
    done = [job for job in run.jobs if job.first_token_s is not None and job.site is not None]
    if not done:
        return NetworkRow(run.summary.usd_per_mtok, (math.nan, math.nan), (math.nan, math.nan))
    round_trip = np.array([run.world.rtt_s(job.gateway, job.site or 0) for job in done])
    sites = case.scenario.sites
    prefill = np.array([sites[job.site or 0].prefill(job.model).seconds(job.prompt_tokens) for job in done])
    first = np.array([(job.first_token_s or 0.0) - job.arrived_s for job in done])
    waiting = np.maximum(0.0, first - round_trip - prefill)
    return NetworkRow(run.summary.usd_per_mtok, _median_and_p99(round_trip), _median_and_p99(waiting))


def _median_and_p99(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    return float(np.median(values)), float(np.percentile(values, 99))
