"""What a node would cost a job, part by part, in seconds. Written once, for a number as for a whole column of them.

    C = network + queue + cold load + wait for memory + reading + writing        the user's own time
      + what it slows down for others
      + scarcity: keep rare big cards for the models that need them
      + price, at the tier's exchange rate
      + flakiness, priced from the node's record
      + suspicion

Only `+ - * /`, comparisons and minimum/maximum are used: the same lines run on floats, on numpy columns and, compiled,
in a loop, and give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

OTHERS_WEIGHT = 2.0
"""A second of somebody else's waiting counts double: they were there first, and herds hurt everybody."""
SCARCITY_WEIGHT = 0.3
KV_WAIT_S_MAX = 20.0
KV_WAIT_SHARE = 0.35
SHORT_PROMPT_TOKENS = 30.0
"""The prompt by which the first-token time was measured."""
SUSPECT_S = 60.0
"""Worth more than any sane prediction: a suspect node is used only if nobody else can."""

PARTS = (
    "network",
    "queue",
    "cold_load",
    "memory",
    "prefill",
    "decode",
    "others",
    "scarcity",
    "price",
    "flakiness",
    "suspect",
)


class JobNumbers(NamedTuple):
    """The job's side of the formula."""

    prompt_tokens: float
    output_tokens: float
    strain: float
    """How much the job's model is in demand (see table.strain_of)."""
    usd_weight: float
    """Seconds that a dollar is worth."""


def network(rtt_s: Any) -> Any:
    return rtt_s


def reading(job: JobNumbers, prefill_tps: Any, fixed_s: Any, speed: Any) -> Any:
    """Seconds to read the prompt on a node that does nothing else; `fixed_s` is what a short one takes."""
    return (fixed_s + np.maximum(0.0, job.prompt_tokens - SHORT_PROMPT_TOKENS) / prefill_tps) / speed


def halving(jobs: Any) -> Any:
    """Reading and writing halve each other when both go on."""
    return 1.0 + (jobs > 0.5)


def step(  # noqa: PLR0917 (columns in a fixed order, called in one place)
    job: JobNumbers,
    jobs: Any,
    step_s: Any,
    per_job_s: Any,
    other_bytes: Any,
    kv_read_bytes: Any,
    kv_token: Any,
    bandwidth: Any,
    share: Any,
    speed: Any,
) -> Any:
    """Seconds per token of this answer, with the company it would have."""
    context = (job.prompt_tokens + job.output_tokens * 0.5) * kv_token
    reads = (other_bytes + kv_read_bytes + context) / bandwidth
    return (step_s + reads + per_job_s * jobs) / speed / (1.0 - share * 0.5)


def memory_wait(job: JobNumbers, writing_s: Any, kv_token: Any, capacity: Any, used: Any) -> Any:
    """Waiting for others to finish, when its context does not fit beside theirs."""
    need = np.maximum(1.0, (job.prompt_tokens + job.output_tokens) * kv_token)
    short = np.maximum(0.0, need - (capacity - used)) / need
    return (short > 0.0) * np.minimum(KV_WAIT_S_MAX, KV_WAIT_SHARE * writing_s * (1.0 + short))


def slowing(  # noqa: PLR0917 (as above)
    job: JobNumbers, jobs: Any, reading_s: Any, per_job_s: Any, kv_token: Any, bandwidth: Any
) -> Any:
    """What the jobs already there lose by it."""
    per_step = per_job_s + job.prompt_tokens * kv_token / bandwidth
    return OTHERS_WEIGHT * jobs * (reading_s * 0.5 + job.output_tokens * 0.5 * per_step)


def scarcity(job: JobNumbers, strain_max: Any, reading_s: Any, writing_s: Any) -> Any:
    """Taking a node away from a model that is shorter of nodes than this one."""
    return SCARCITY_WEIGHT * np.maximum(0.0, strain_max - job.strain) * (reading_s + writing_s * 0.125)


def price(job: JobNumbers, prompt_usd: Any, completion_usd: Any) -> Any:
    return job.usd_weight * (job.prompt_tokens * prompt_usd + job.output_tokens * completion_usd)


def flakiness(odds: Any, so_far: Any) -> Any:
    """A failure costs a second and half of the job again; `odds` is q / (1 - q) of the node's record."""
    return odds * (1.0 + so_far * 0.5)
