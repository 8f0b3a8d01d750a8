"""A stored point of the history as it is published: rates and percentiles instead of counts. Pure.

Sums of tokens are rounded, or left out, so that they do not reveal how long a single answer was.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from sparewatt.protocol.api.network import HistoryFigures, HistoryPoint
from sparewatt.store.history import HistoryCounts, HistoryRow
from sparewatt.telemetry.feed.public import digits
from sparewatt.telemetry.history.buckets import SPEED_UNIT, percentile

CROWD = 5
"""A sum of tokens is published for so many jobs or more: over fewer it would say how long a single answer was."""

FINEST = 50
"""Sums of tokens are rounded to such steps, then to two digits: two digits of a small sum alone would be exact."""


def rounded(value: float | None) -> float | None:
    """To three digits: percentiles of buckets are not more precise."""
    return None if value is None else digits(value, 3)


def tokens_of(figures: HistoryCounts) -> int | None:
    """Rounded, so that a difference of two sums does not reveal one job; None if too few jobs wrote them."""
    return None if 0 < figures.jobs < CROWD else int(digits(round(figures.tokens / FINEST) * FINEST, 2))


def describe_figures(figures: HistoryCounts, *, step_s: float) -> HistoryFigures:
    """`step_s`: how much time they cover."""
    tokens = tokens_of(figures)
    answered = figures.jobs - figures.cancelled
    return HistoryFigures(
        jobs=figures.jobs,
        failed=figures.failed,
        cancelled=figures.cancelled,
        success_rate=round(1 - figures.failed / answered, 6) if answered > 0 else None,
        tokens=tokens,
        tokens_per_s=digits(tokens / step_s, 2) if tokens is not None and step_s > 0 else None,
        first_token_p50_ms=rounded(percentile(figures.first_token, 0.5)),
        first_token_p95_ms=rounded(percentile(figures.first_token, 0.95)),
        speed_p50_tps=_speed(figures, 0.5),
        speed_p5_tps=_speed(figures, 0.05),
        up=round(min(1.0, figures.up_s / figures.known_s), 4) if figures.known_s > 0 else None,
        nodes=figures.nodes,
        gpus=figures.gpus,
        vram_gb=round(figures.vram_bytes / 1e9),
    )


def _speed(figures: HistoryCounts, share: float) -> float | None:
    units = percentile(figures.speed, share)
    return None if units is None else rounded(units * SPEED_UNIT)


def describe_point(point: HistoryRow, *, step_s: int) -> HistoryPoint:
    figures = describe_figures(point.figures, step_s=step_s)
    return HistoryPoint(at=int(point.at.timestamp()), name=point.name, **structs.asdict(figures))


def sum_of(points: Iterable[HistoryRow]) -> HistoryCounts:
    """Over all points."""
    total = HistoryCounts()
    for point in points:
        total.add(point.figures)
    return total
