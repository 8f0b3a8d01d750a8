"""The terms of the `balanced` cost, each in seconds, each a pure function of (job, node, model on that node).

Only measured speeds are used. A figure that a node claims about itself moves no term.
"""

from __future__ import annotations

from sparewatt.core.money import NANO_PER_USD, token_cost
from sparewatt.inference.matcher.model import MatchJob, NodeRow
from sparewatt.protocol.node import ModelReport, Speed

BATCH_SLOWDOWN = 0.5
"""What each further running job adds to the time of a step, as a share of the step alone. CPU servers lie near 1,
good GPU engines near 0.05; learned per node once observations flow back."""

SUSPECT_S = 60.0
"""Worth more than any sane prediction: a suspect node is used only if nobody else can."""

PRICE_S_PER_USD = 1e4
"""The `balanced` tier's exchange rate: a tenth of a cent is worth ten seconds."""

SLOWEST_TPS = 1e-3
"""A lower speed is a broken measurement; the floor keeps every cost finite."""

LOADING_S = 10.0
"""A model that is being loaded right now: half of a typical load is still ahead."""


def speed_of(model: ModelReport) -> Speed:
    if model.measured is None:
        raise ValueError("the measured filter lets no unmeasured model through")
    return model.measured


def network_s(row: NodeRow) -> float:
    return row.rtt_s


def cold_load_s(model: ModelReport) -> float:
    """Seconds until the model can start: 8 s and 1.5 GB/s of reading, within the 10-30 s that are seen in practice."""
    match model.state:
        case "warm":
            return 0.0
        case "loading":
            return LOADING_S
        case "on_disk":
            return min(30.0, max(10.0, 8.0 + model.weights_bytes / 1.5e9))


def running_beside(row: NodeRow) -> int:
    """Jobs that would share each step with this one."""
    return min(row.jobs_there, row.specs.slots - 1)


def reading_s(prompt_tokens: int, model: ModelReport) -> float:
    return prompt_tokens / max(SLOWEST_TPS, speed_of(model).prefill_tps)


def step_s(row: NodeRow, model: ModelReport) -> float:
    """Time per token of one stream, with the company it would have."""
    return (1.0 + BATCH_SLOWDOWN * running_beside(row)) / max(SLOWEST_TPS, speed_of(model).decode_tps)


def queue_s(job: MatchJob, row: NodeRow, model: ModelReport) -> float:
    """Prompts dispatched from here that are still being read, and jobs that wait for a slot."""
    prefill_backlog_s = reading_s(row.own_prompt_tokens, model)
    waiting = max(0, row.jobs_there + 1 - row.specs.slots)
    typical_output = row.own_output_tokens / row.own_jobs if row.own_jobs else job.output_tokens
    return prefill_backlog_s + waiting * typical_output * step_s(row, model) / row.specs.slots


def prefill_s(job: MatchJob, model: ModelReport) -> float:
    return max(speed_of(model).ttft_s, reading_s(job.prompt_tokens, model))


def decode_s(job: MatchJob, row: NodeRow, model: ModelReport) -> float:
    return job.output_tokens * step_s(row, model)


def price_nano(job: MatchJob, model: ModelReport) -> int:
    return token_cost(
        prompt_tokens=job.prompt_tokens,
        completion_tokens=job.output_tokens,
        prompt_price=model.prompt_price_nano,
        completion_price=model.completion_price_nano,
    )


def price_s(job: MatchJob, model: ModelReport) -> float:
    return PRICE_S_PER_USD * price_nano(job, model) / NANO_PER_USD
