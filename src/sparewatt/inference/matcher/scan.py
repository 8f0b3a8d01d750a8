"""Filter, price and rank all nodes of one model at once. Pure arithmetic on the columns of `entries`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher.entries import Field, Floats
from sparewatt.inference.matcher.formula import JobNumbers
from sparewatt.inference.matcher.model import HealthRules, MatchJob, Rejection

Bools = NDArray[np.bool_]
GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: per place the first filter that stopped it (or none), and per part its column."""

    stopped: dict[Rejection, Bools]
    able: Bools


def eligible(job: MatchJob, data: Floats, *, now_s: float, rules: HealthRules) -> Scan:
    """Each filter sees only what the ones before it let through."""
    is_away = (data[Field.CONNECTED] == 0) | (now_s - data[Field.LAST_HEARD_S] >= rules.offline_after_s)
    context = job.prompt_tokens + job.output_tokens
    needed = data[Field.WEIGHTS_BYTES] + data[Field.KV_BYTES_PER_TOKEN] * context
    too_big = (data[Field.WARM] == 0) & (data[Field.VRAM_BYTES] < needed)
    checks = {
        Rejection.OFFLINE: is_away,
        Rejection.DRAINING: data[Field.DRAINING] != 0,
        Rejection.PROMPT_TOO_LONG: job.prompt_tokens_floor >= data[Field.CONTEXT_TOKENS],
        Rejection.TOO_LITTLE_VRAM: too_big,
        Rejection.NOT_MEASURED: data[Field.MEASURED] == 0,
        Rejection.FULL: data[Field.JOBS] >= data[Field.ROOM_JOBS],
    }
    able = np.ones(data.shape[1], bool)
    stopped: dict[Rejection, Bools] = {}
    for reason, fails in checks.items():
        here = able & fails
        if here.any():
            stopped[reason] = here
            able &= ~fails
    return Scan(stopped, able)


def balanced_parts(job: JobNumbers, data: Floats, *, now_s: float, rules: HealthRules) -> tuple[Floats, ...]:
    """The columns of `formula.PARTS`, in its order."""
    speed, jobs, bandwidth = data[Field.SPEED], data[Field.JOBS], data[Field.BANDWIDTH]
    per_job, kv_token = data[Field.STEP_PER_JOB_S], data[Field.KV_BYTES_PER_TOKEN]
    halving = formula.halving(jobs)
    read = formula.reading(job, data[Field.PREFILL_TPS], data[Field.FIXED_S], speed)
    step = formula.step(
        job, jobs, data[Field.STEP_S], per_job, data[Field.OTHER_ACTIVE_BYTES], data[Field.KV_READ_BYTES],
        kv_token, bandwidth, data[Field.PREFILL_SHARE], speed,
    )  # fmt: skip
    write = job.output_tokens * step
    is_silent = now_s - data[Field.LAST_HEARD_S] >= rules.suspect_after_s
    suspicious = is_silent | (now_s < data[Field.SUSPECT_UNTIL_S])
    own = (
        formula.network(data[Field.RTT_S]),
        data[Field.BACKLOG_S] * halving / speed,
        data[Field.COLD_S],
        formula.memory_wait(job, write, kv_token, data[Field.KV_CAPACITY_BYTES], data[Field.KV_USED_BYTES]),
        read * halving,
        write,
        formula.slowing(job, jobs, read, per_job, kv_token, bandwidth),
        formula.scarcity(job, data[Field.STRAIN_MAX], read, write),
        formula.price(job, data[Field.PROMPT_USD], data[Field.COMPLETION_USD]),
    )
    so_far = own[0] + own[1] + own[2] + own[3] + own[4] + own[5] + own[6] + own[7] + own[8]
    return (*own, formula.flakiness(data[Field.FAILURE_ODDS], so_far), formula.SUSPECT_S * suspicious)


def neuralgrid_parts(job: MatchJob, data: Floats) -> tuple[Floats, ...]:
    """NeuralGrid's scoreNode as published; the score is the sum, -1 when offline or too small."""
    context = job.prompt_tokens + job.output_tokens
    min_vram = np.maximum(1.0, data[Field.WEIGHTS_BYTES] + data[Field.KV_BYTES_PER_TOKEN] * context) / GIB
    vram = data[Field.VRAM_BYTES] / GIB
    fits = (vram >= min_vram) & (data[Field.CONNECTED] != 0)
    return (
        np.where(fits, 0.3 * (vram / min_vram), -1.0),
        np.where(fits, 0.5 * (data[Field.TFLOPS] / 100), 0.0),
        np.where(fits, 0.2 * (1 / (data[Field.HOURLY_USD] + 0.01)), 0.0),
    )


def best_places(cost: Floats, able: Bools, nodes: Sequence[NodeId], *, k: int) -> list[int]:
    """The k cheapest able places, by cost to the microsecond, then by node id."""
    rounded = np.where(able, np.floor(cost * 1e6 + 0.5), np.inf)
    n_able = int(np.count_nonzero(able))
    if n_able == 0:
        return []
    limit = np.partition(rounded, min(k, n_able) - 1)[min(k, n_able) - 1]
    near = np.flatnonzero(able & (rounded <= limit)).tolist()
    return sorted(near, key=lambda place: (rounded[place], nodes[place]))[:k]
