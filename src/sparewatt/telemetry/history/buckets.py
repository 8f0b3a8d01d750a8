"""Times and speeds as counts per bucket, so that percentiles of any span can be had by adding. Pure.

Eight buckets per factor of ten, from 1 to 100,000: a percentile is right to within a few per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

PER_DECADE = 8
COUNT = 5 * PER_DECADE
SPEED_UNIT = 0.1
"""Speeds are counted in tenths of a token per second: slow nodes write less than one."""


def empty() -> list[int]:
    return [0] * COUNT


def bucket_of(value: float) -> int:
    if value <= 1.0:
        return 0
    bucket = int(PER_DECADE * math.log10(value))
    return bucket if bucket < COUNT else COUNT - 1


def total_of(lines: Iterable[Sequence[int]]) -> list[int]:
    """Of lines that may be shorter: an older release had fewer buckets."""
    summed = empty()
    for line in lines:
        for at, count in enumerate(line[:COUNT]):
            summed[at] += count
    return summed


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The value below which `share` of them lie, by the place within its bucket; None if there are none."""
    wanted = share * sum(counts)
    passed = 0.0
    for bucket, count in enumerate(counts):
        if count and passed + count >= wanted:
            return float(10 ** ((bucket + (wanted - passed) / count) / PER_DECADE))
        passed += count
    return None
