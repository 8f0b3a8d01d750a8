"""The scan compiled: one pass over the places, filter, cost and the best k kept on the way. Imported only with numba.

It calls the very functions of `formula`, in the order in which `scan` does, so both give the same best k to the bit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher.entries import Field
from sparewatt.inference.matcher.formula import PARTS

N_PARTS = len(PARTS)
_STEP, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

# Plain integers: compiled code reads them as constants.
CONNECTED, DRAINING, LAST_HEARD = int(Field.CONNECTED), int(Field.DRAINING), int(Field.LAST_HEARD_S)
SUSPECT_UNTIL, RTT, JOBS, BACKLOG = int(Field.SUSPECT_UNTIL_S), int(Field.RTT_S), int(Field.JOBS), int(Field.BACKLOG_S)
KV_USED, KV_READ, OTHER = int(Field.KV_USED_BYTES), int(Field.KV_READ_BYTES), int(Field.OTHER_ACTIVE_BYTES)
SHARE, SPEED, ODDS, STRAIN = int(Field.PREFILL_SHARE), int(Field.SPEED), int(Field.FAILURE_ODDS), int(Field.STRAIN_MAX)
ROOM, VRAM, KV_CAPACITY = int(Field.ROOM_JOBS), int(Field.VRAM_BYTES), int(Field.KV_CAPACITY_BYTES)
BANDWIDTH, COLD, PREFILL, FIXED_S = int(Field.BANDWIDTH), int(Field.COLD_S), int(Field.PREFILL_TPS), int(Field.FIXED_S)
STEP_S, PER_JOB, PROMPT_USD = int(Field.STEP_S), int(Field.STEP_PER_JOB_S), int(Field.PROMPT_USD)
COMPLETION_USD, WEIGHTS, KV_TOKEN = int(Field.COMPLETION_USD), int(Field.WEIGHTS_BYTES), int(Field.KV_BYTES_PER_TOKEN)
CONTEXT, MEASURED, WARM = int(Field.CONTEXT_TOKENS), int(Field.MEASURED), int(Field.WARM)


SUSPECT_S = formula.SUSPECT_S

jit = numba.njit(error_model="numpy", boundscheck=False)

reading, halving, step = jit(formula.reading), jit(formula.halving), jit(formula.step)
memory_wait, slowing = jit(formula.memory_wait), jit(formula.slowing)
scarcity, price = jit(formula.scarcity), jit(formula.price)
flakiness = jit(formula.flakiness)


@jit
def stopped_by(x: Any, e: int, limits: Any) -> int:
    """The number of the first filter that stops the place, or -1. `limits`: floor, context, now, away after."""
    floor, context, now_s, away_s = limits
    stop = -1
    if x[CONNECTED, e] == 0 or now_s - x[LAST_HEARD, e] >= away_s:
        stop = 0
    elif x[DRAINING, e] != 0:
        stop = 1
    elif floor >= x[CONTEXT, e]:
        stop = 2
    elif x[WARM, e] == 0 and x[VRAM, e] < x[WEIGHTS, e] + x[KV_TOKEN, e] * context:
        stop = 3
    elif x[MEASURED, e] == 0:
        stop = 4
    elif x[JOBS, e] >= x[ROOM, e]:
        stop = 5
    return stop


@jit
def fill_parts(out: Any, job: Any, x: Any, e: int, now_s: float, suspect_after_s: float) -> float:  # noqa: PLR0917
    """The parts of one place, as `scan.balanced_parts` has them; returns their sum."""
    speed, jobs, bandwidth = x[SPEED, e], x[JOBS, e], x[BANDWIDTH, e]
    per_job, kv_token = x[PER_JOB, e], x[KV_TOKEN, e]
    half = halving(jobs)
    read = reading(job, x[PREFILL, e], x[FIXED_S, e], speed)
    token_s = step(
        job, jobs, x[STEP_S, e], per_job, x[OTHER, e], x[KV_READ, e], kv_token, bandwidth, x[SHARE, e], speed
    )
    write = job.output_tokens * token_s
    out[0] = x[RTT, e]
    out[1] = x[BACKLOG, e] * half / speed
    out[2] = x[COLD, e]
    out[3] = memory_wait(job, write, kv_token, x[KV_CAPACITY, e], x[KV_USED, e])
    out[4] = read * half
    out[5] = write
    out[6] = slowing(job, jobs, read, per_job, kv_token, bandwidth)
    out[7] = scarcity(job, x[STRAIN, e], read, write)
    out[8] = price(job, x[PROMPT_USD, e], x[COMPLETION_USD, e])
    so_far = out[0] + out[1] + out[2] + out[3] + out[4] + out[5] + out[6] + out[7] + out[8]
    out[9] = flakiness(x[ODDS, e], so_far)
    suspicious = now_s - x[LAST_HEARD, e] >= suspect_after_s or now_s < x[SUSPECT_UNTIL, e]
    out[10] = SUSPECT_S if suspicious else 0.0
    total: float = so_far + out[9] + out[10]
    return total


@jit
def fraction(start: Any, node_hash: Any) -> float:
    """As `hashing.fractions`."""
    h = (node_hash ^ start) + _STEP
    h = (h ^ (h >> np.uint64(30))) * _MIX_1
    h = (h ^ (h >> np.uint64(27))) * _MIX_2
    h = h ^ (h >> np.uint64(31))
    return float(h >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def goes_before(cost: float, high: Any, other_cost: float, other_high: Any) -> bool:
    before: bool = cost < other_cost or (cost == other_cost and high < other_high)
    return before


@jit
def insert(found: int, cost: float, e: int, parts: Any, highs: Any, best: Any) -> int:  # noqa: PLR0917
    """Put a place into the best k, in order; returns how many there are now."""
    places, costs, kept = best
    k = places.size
    if found == k and not goes_before(cost, highs[e], costs[k - 1], highs[places[k - 1]]):
        return found
    at = min(found, k - 1)
    while at > 0 and goes_before(cost, highs[e], costs[at - 1], highs[places[at - 1]]):
        costs[at], places[at] = costs[at - 1], places[at - 1]
        kept[at] = kept[at - 1]
        at -= 1
    costs[at], places[at] = cost, e
    kept[at] = parts
    n_found: int = min(k, found + 1)
    return n_found


@jit
def scan(  # noqa: PLR0917
    columns: Any, n_places: int, named: Any, job: Any, limits: Any, chance: Any, best: Any, counts: Any
) -> int:
    """Fill `best` and `counts`; all places if none are named. `chance`: jitter and start."""
    x, hashes, highs = columns
    floor, context, now_s, away_s, suspect_after_s = limits
    jitter, start = chance
    costs = best[1]
    parts = np.empty(N_PARTS + 1)
    found, worst = 0, np.inf
    n = named.size
    for i in range(n or n_places):
        e = named[i] if n else i
        stop = stopped_by(x, e, (floor, context, now_s, away_s))
        if stop >= 0:
            counts[stop] += 1
            continue
        base = fill_parts(parts, job, x, e, now_s, suspect_after_s)
        parts[N_PARTS] = abs(base) * jitter * fraction(start, hashes[e])
        cost = np.floor((base + parts[N_PARTS]) * 1e6 + 0.5)
        if cost <= worst:
            found = insert(found, cost, e, parts, highs, best)
            worst = costs[found - 1] if found == costs.size else np.inf
    return found
