"""What nodes ask per token: the hour's price over the card's own nominal throughput, reading or writing for eight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S, Scenario, Site

Floats = NDArray[np.float64]
PRICED_BATCH = 8


def nominal_decode_tps(site: Site, weights_bytes: float, batch: int) -> float:
    """By the card's table, not by what the machine really does."""
    bandwidth = site.bandwidth / site.speed
    return batch / (weights_bytes / bandwidth + STEP_FIXED_S + STEP_PER_JOB_S * batch)


def nominal_prefill_tps(site: Site, active_params: float) -> float:
    return site.flops / site.speed / (2 * active_params)


class PriceTable(NamedTuple):
    """$ per token read and per token written, by model and site."""

    prompt: Floats
    completion: Floats

    def of(self, job: SimJob) -> Floats:
        """$ for the job, on every site."""
        at = job.model.number
        asked: Floats = self.prompt[at] * job.prompt_tokens + self.completion[at] * job.output_tokens
        return asked


def price_table(scenario: Scenario) -> PriceTable:
    second = np.array([site.usd_per_hour / 3600 for site in scenario.sites])
    sites, models = scenario.sites, scenario.models
    reading = [[nominal_prefill_tps(site, model.active_params) for site in sites] for model in models]
    writing = [[nominal_decode_tps(site, model.weights_bytes, PRICED_BATCH) for site in sites] for model in models]
    return PriceTable(second / np.array(reading), second / np.array(writing))
