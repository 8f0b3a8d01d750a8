"""A stored point of the history as it is published: rates and percentiles instead of counts. Pure.

Sums of tokens are rounded, or left out, so that they do not reveal how long a single answer was.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from sparewatt.protocol.api.network import HistoryFigures, HistoryPoint
from sparewatt.store.history import HistoryCounts, HistoryRow
from sparewatt.telemetry.feed.public import BYTES_PER_GB, digits
from sparewatt.telemetry.history.interval import SPEED_UNIT, percentile

JOBS_FOR_A_SUM_MIN = 5
"""A sum of tokens over fewer jobs is not published: it would reveal how long a single answer was."""
TOKENS_STEP = 50
"""Sums of tokens are rounded to such steps, then to two digits: two digits of a small sum alone would be exact."""


def describe_figures(figures: HistoryCounts, *, step_s: float) -> HistoryFigures:
    """`step_s`: how much time they cover."""
    tokens = _rounded_tokens(figures)
    answered = figures.jobs - figures.cancelled
    return HistoryFigures(
        jobs=figures.jobs,
        failed=figures.failed,
        cancelled=figures.cancelled,
        success_rate=round(1 - figures.failed / answered, 6) if answered > 0 else None,
        tokens=tokens,
        tokens_per_s=digits(tokens / step_s, 2) if tokens is not None and step_s > 0 else None,
        first_token_p50_ms=_percentile(figures.first_token, 0.5),
        first_token_p95_ms=_percentile(figures.first_token, 0.95),
        speed_p50_tps=_percentile(figures.speed, 0.5, unit=SPEED_UNIT),
        speed_p5_tps=_percentile(figures.speed, 0.05, unit=SPEED_UNIT),
        up=round(min(1.0, figures.up_s / figures.known_s), 4) if figures.known_s > 0 else None,
        nodes=figures.nodes,
        gpus=figures.gpus,
        vram_gb=round(figures.vram_bytes / BYTES_PER_GB),
    )


def _rounded_tokens(figures: HistoryCounts) -> int | None:
    """A difference of two sums does not reveal one job either. None if too few jobs wrote them."""
    if 0 < figures.jobs < JOBS_FOR_A_SUM_MIN:
        return None
    return int(digits(round(figures.tokens / TOKENS_STEP) * TOKENS_STEP, 2))


def _percentile(counts: list[int], share: float, *, unit: float = 1.0) -> float | None:
    """To three digits: buckets are not more precise."""
    value = percentile(counts, share)
    return None if value is None else digits(value * unit, 3)


def describe_point(point: HistoryRow, *, step_s: int) -> HistoryPoint:
    figures = describe_figures(point.figures, step_s=step_s)
    return HistoryPoint(at=int(point.at.timestamp()), name=point.name, **structs.asdict(figures))


def sum_of(points: Iterable[HistoryRow]) -> HistoryCounts:
    total = HistoryCounts()
    for point in points:
        total.add(point.figures)
    return total
