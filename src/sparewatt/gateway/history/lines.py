"""A stored point as lines show it: rates and percentiles instead of counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparewatt.gateway.history.buckets import SPEED_UNIT, percentile
from sparewatt.store.history import Figures, Point


def rounded(value: float | None) -> float | None:
    """To three digits: more would pretend."""
    return None if value is None else float(f"{value:.3g}")


def describe_figures(figures: Figures, *, step_s: float) -> dict[str, Any]:
    """`step_s`: how much time they cover."""
    answered = figures.jobs - figures.cancelled
    return {
        "jobs": figures.jobs,
        "failed": figures.failed,
        "cancelled": figures.cancelled,
        "success_rate": round(1 - figures.failed / answered, 6) if answered > 0 else None,
        "tokens": figures.tokens,
        "tokens_per_s": rounded(figures.tokens / step_s) if step_s > 0 else None,
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
