"""Wilson's lower bound and exponential forgetting in whole numbers, so that everybody gets the same to the unit. Pure.

Counts are in millionths (`UNIT`). Successes s and failures f are a Beta(1 + s, 1 + f) distribution; the bound is the
one below which its mean lies with 5 %. A failure never raises it, nor a success lowers it.
"""

from __future__ import annotations

import math

UNIT = 10**6
BILLION = 10**9
_SCALE = 10**6
"""The bound is computed in millionths of a unit's millionth, so that rounding is far below one part per million."""
_Z = 1_644_900 * _SCALE
"""5 % of a normal distribution lie below -1.6449."""
_Z2 = 2_705_696 * _SCALE


def wilson_lower_ppm(good: int, bad: int) -> int:
    done = (UNIT + good) * _SCALE
    broken = (UNIT + bad) * _SCALE
    total = done + broken
    one = UNIT * _SCALE
    root = math.isqrt((done * broken // total + _Z2 // 4) * one)
    return UNIT * (done + _Z2 // 2 - _Z * root // one) // (total + _Z2)


def mean_ppm(good: int, bad: int) -> int:
    return UNIT * (UNIT + good) // (2 * UNIT + good + bad)


def day_weights(daily_billionths: int, *, days: int) -> tuple[int, ...]:
    """What a day counts after 0, 1, 2 … days, in billionths."""
    weights = [BILLION]
    while len(weights) <= days:
        weights.append(weights[-1] * daily_billionths // BILLION)
    return tuple(weights)
