"""A stored point as lines show it to everybody: rates and percentiles instead of counts, nothing of one job. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparewatt.gateway.feeds.public import digits
from sparewatt.gateway.history.buckets import SPEED_UNIT, percentile
from sparewatt.store.history import Figures, Point

CROWD = 5
"""Jobs that tokens are told of together: of fewer, the sum would say how long somebody's answer was."""

FINEST = 50
"""Tokens are told in such steps, or in two digits where that is coarser: two digits of a small sum are all of it."""


def rounded(value: float | None) -> float | None:
    """To three digits: more would pretend."""
    return None if value is None else digits(value, 3)


def tokens_of(figures: Figures) -> int | None:
    """Rounded, so that no job is found by what it added; None where too few jobs wrote them."""
    return None if 0 < figures.jobs < CROWD else int(digits(round(figures.tokens / FINEST) * FINEST, 2))


def describe_figures(figures: Figures, *, step_s: float) -> dict[str, Any]:
    """`step_s`: how much time they cover."""
    tokens = tokens_of(figures)
    answered = figures.jobs - figures.cancelled
    return {
        "jobs": figures.jobs,
        "failed": figures.failed,
        "cancelled": figures.cancelled,
        "success_rate": round(1 - figures.failed / answered, 6) if answered > 0 else None,
        "tokens": tokens,
        "tokens_per_s": digits(tokens / step_s, 2) if tokens is not None and step_s > 0 else None,
        "first_token_p50_ms": rounded(percentile(figures.first_token, 0.5)),
        "first_token_p95_ms": rounded(percentile(figures.first_token, 0.95)),
        "speed_p50_tps": _speed(figures, 0.5),
        "speed_p5_tps": _speed(figures, 0.05),
        "up": round(min(1.0, figures.up_s / figures.known_s), 4) if figures.known_s > 0 else None,
        "nodes": figures.nodes,
        "gpus": figures.gpus,
        "vram_gb": round(figures.vram_bytes / 1e9),
    }


def _speed(figures: Figures, share: float) -> float | None:
    found = percentile(figures.speed, share)
    return None if found is None else rounded(found * SPEED_UNIT)


def describe_point(point: Point, *, step_s: int) -> dict[str, Any]:
    return {"at": int(point.at.timestamp()), "name": point.name, **describe_figures(point.figures, step_s=step_s)}


def sum_of(points: Iterable[Point]) -> Figures:
    """Over all of them."""
    total = Figures()
    for point in points:
        total.add(point.figures)
    return total
