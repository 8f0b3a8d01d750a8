"""What a node would cost a job, part by part, in seconds. Written once, for a number as for a whole column of them.

    C = network + queue + cold load + wait for memory + reading + writing        the user's own time
      + what it slows down for others
      + scarcity: keep rare big cards for the models that need them
      + price, at the tier's exchange rate
      + flakiness, priced from the node's record
      + suspicion

Only `+ - * /`, comparisons and minimum/maximum are used: the same lines run on floats, on numpy columns and, compiled,
in a loop, and give the same bits. All of it needs the job; what follows from a report alone is in `figures`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparewatt.inference.matcher.columns import ColumnField

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


def network(rtt_s: Any) -> Any:
    return rtt_s


def reading(job: Any, fixed_s: Any, token_s: Any) -> Any:
    """Seconds to read the prompt on a node that does nothing else; `fixed_s` is what a short one takes."""
    return fixed_s + max(0.0, job.prompt_tokens - SHORT_PROMPT_TOKENS) * token_s


def writing(job: Any, step_s: Any, step_token_s: Any) -> Any:
    """Seconds to write the answer: its own context grows, so each step reads the prompt and half of the answer."""
    return job.output_tokens * (step_s + (job.prompt_tokens + job.output_tokens * 0.5) * step_token_s)


def memory_wait(job: Any, writing_s: Any, kv_token: Any, free_bytes: Any) -> Any:
    """Waiting for others to finish, when its context does not fit beside theirs."""
    need = np.maximum(1.0, (job.prompt_tokens + job.output_tokens) * kv_token)
    short = np.maximum(0.0, need - free_bytes) / need
    return (short > 0.0) * np.minimum(KV_WAIT_S_MAX, KV_WAIT_SHARE * writing_s * (1.0 + short))


def slowing(job: Any, jobs: Any, reading_s: Any, per_job_s: Any, token_s: Any) -> Any:
    """What the jobs already there lose by it; `token_s` is what one token of context adds to a step."""
    return OTHERS_WEIGHT * jobs * (reading_s + job.output_tokens * (per_job_s + job.prompt_tokens * token_s)) * 0.5


def scarcity(job: Any, strain_max: Any, reading_s: Any, writing_s: Any) -> Any:
    """Taking a node away from a model that is shorter of nodes than this one."""
    return SCARCITY_WEIGHT * np.maximum(0.0, strain_max - job.strain) * (reading_s + writing_s * 0.125)


def usd(job: Any, prompt_usd: Any, completion_usd: Any) -> Any:
    """What the node asks for the job."""
    return job.prompt_tokens * prompt_usd + job.output_tokens * completion_usd


def price(job: Any, usd_asked: Any) -> Any:
    return job.usd_weight * usd_asked


def flakiness(odds: Any, so_far: Any) -> Any:
    """A failure costs a second and half of the job again; `odds` is q / (1 - q) of the node's record."""
    return odds * (1.0 + so_far * 0.5)


def suspicion(job: Any, last_heard_s: Any, suspect_until_s: Any) -> Any:
    return SUSPECT_S * ((last_heard_s <= job.silent_since_s) | (job.now_s < suspect_until_s))


# The whole. `x` holds a place's numbers, or the columns of many.


def parts(job: Any, x: Any) -> Any:
    """The parts in the order of PARTS, none below zero."""
    read = reading(job, x[ColumnField.READ_FIXED_S], x[ColumnField.READ_TOKEN_S])
    write = writing(job, x[ColumnField.STEP_S], x[ColumnField.STEP_TOKEN_S])
    away = network(x[ColumnField.RTT_S])
    wait, cold = x[ColumnField.QUEUE_S], x[ColumnField.COLD_S]
    memory = memory_wait(job, write, x[ColumnField.KV_BYTES_PER_TOKEN], x[ColumnField.KV_FREE_BYTES])
    prefill = read * x[ColumnField.HALVING]
    others = slowing(job, x[ColumnField.JOBS], read, x[ColumnField.STEP_PER_JOB_S], x[ColumnField.KV_TOKEN_S])
    rare = scarcity(job, x[ColumnField.STRAIN_MAX], read, write)
    paid = price(job, usd(job, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD]))
    so_far = away + wait + cold + memory + prefill + write + others + rare + paid
    flaky = flakiness(x[ColumnField.FAILURE_ODDS], so_far)
    suspect = suspicion(job, x[ColumnField.LAST_HEARD_S], x[ColumnField.SUSPECT_UNTIL_S])
    return away, wait, cold, memory, prefill, write, others, rare, paid, flaky, suspect


def counted(weight: Any, part: Any) -> Any:
    """A part by what it counts for. Nearly always that is 1, and a column need not be walked for it."""
    return part if weight == 1.0 else weight * part


def total(job: Any, p: Any) -> Any:
    """The parts by what the request says each of them counts for."""
    w = job.weights
    waits = counted(w[0], p[0]) + counted(w[1], p[1]) + counted(w[2], p[2]) + counted(w[3], p[3])
    own = waits + counted(w[4], p[4]) + counted(w[5], p[5])
    rest = own + counted(w[6], p[6]) + counted(w[7], p[7]) + counted(w[8], p[8])
    return rest + counted(w[9], p[9]) + counted(w[10], p[10])


def at_least(job: Any, x: Any) -> Any:
    """Some of the parts, quickly: no part is below zero, so the total cannot be lower than this, to the bit."""
    w = job.weights
    read = reading(job, x[ColumnField.READ_FIXED_S], x[ColumnField.READ_TOKEN_S])
    write = writing(job, x[ColumnField.STEP_S], x[ColumnField.STEP_TOKEN_S])
    paid = price(job, usd(job, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD]))
    waits = (
        counted(w[0], network(x[ColumnField.RTT_S]))
        + counted(w[1], x[ColumnField.QUEUE_S])
        + counted(w[2], x[ColumnField.COLD_S])
    )
    return waits + counted(w[4], read * x[ColumnField.HALVING]) + counted(w[5], write) + counted(w[8], paid)


def to_us(cost: Any) -> Any:
    """Costs are compared to the microsecond."""
    return np.floor(cost * 1e6 + 0.5)


def summary(job: Any, p: Any, jitter: Any, x: Any) -> Any:
    """In the order of SUMMARY."""
    first_token_s = p[0] + p[1] + p[2] + p[3] + p[4]
    usd_asked = usd(job, x[ColumnField.PROMPT_USD], x[ColumnField.COMPLETION_USD])
    return total(job, p) + jitter, first_token_s, first_token_s + p[5], usd_asked


SUMMARY = ("cost", "first_token_s", "finish_s", "usd")
LARGEST = float(np.finfo(np.float64).max)
"""Any cost is at most this; infinity stands for who is not to be had."""

COMPILED = (
    network,
    reading,
    writing,
    memory_wait,
    slowing,
    scarcity,
    usd,
    price,
    flakiness,
    suspicion,
    counted,
    parts,
    total,
    at_least,
    to_us,
    summary,
)
"""What a compiled loop needs, each after what it calls."""
