"""What nodes ask per token: the hour's price over the card's own nominal throughput with eight jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.physics import SimJob
from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S, Scenario, Site

Floats = NDArray[np.float64]
PRICED_BATCH = 8
PROMPT_PRICE_SHARE = 0.25
"""A token read costs a quarter of one written, as is usual in price lists."""


def nominal_decode_tps(site: Site, weights_bytes: float, batch: int) -> float:
    """By the card's table, not by what the machine really does."""
    bandwidth = site.bandwidth / site.speed
    return batch / (weights_bytes / bandwidth + STEP_FIXED_S + STEP_PER_JOB_S * batch)


def price_table(scenario: Scenario) -> Floats:
    """$ per token written, by model and site."""
    return np.array(
        [
            [
                site.usd_per_hour / 3600 / nominal_decode_tps(site, model.weights_bytes, PRICED_BATCH)
                for site in scenario.sites
            ]
            for model in scenario.models
        ]
    )


def weighted_tokens(job: SimJob) -> float:
    return job.output_tokens + PROMPT_PRICE_SHARE * job.prompt_tokens
