"""The SVG plot of a study: a bar for each scheduler with its spread over seeds, and lines for oracle and bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from sparewatt.core.plural import pluralize
from sparewatt.sim.results.summary import RunSummary
from sparewatt.sim.study import StudyResult

INK, SURFACE, LINE, TEXT, MUTED = "#0B0F14", "#121821", "#1E2733", "#E6EDF3", "#8B98A5"
VOLT, TEAL, BLUE = "#F2B705", "#2DD4BF", "#60A5FA"
SHIPPED = ("fast", "balanced", "economy")
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 880, 150, 210, 96, 32, 16
MONO = "ui-monospace, Menlo, Consolas, monospace"
SANS = "system-ui, sans-serif"


def draw(result: StudyResult) -> str:
    """Mean completion time on a logarithmic axis, since schedulers differ by more than a factor of ten."""
    bound, oracle = _mean(result.bound), _mean(result.oracle)
    means = {name: _mean(runs) for name, runs in result.schedulers.items()}
    low, high = _range([bound, oracle, *means.values()])
    height = TOP + ROW * len(means) + 64
    bottom = TOP + ROW * len(means)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / low) / math.log(high / low)

    parts = [_head(height), _titles(result)]
    parts += [_tick(x(value), value, bottom) for value in _ticks(low, high)]
    for row, (name, runs) in enumerate(result.schedulers.items()):
        parts.append(
            _row(TOP + ROW * row, name, runs, left=LEFT, x=[x(run.e2e_mean) for run in runs], end=x(means[name]))
        )
    parts.append(_mark(x(oracle), bottom, TEAL, f"oracle {oracle:.2f} s", above=14))
    parts.append(_mark(x(bound), bottom, BLUE, f"bound {bound:.2f} s", above=0))
    return "\n".join([*parts, "</svg>", ""])


def _mean(runs: Sequence[RunSummary]) -> float:
    return float(np.mean([run.e2e_mean for run in runs]))


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values) * 0.8, max(values) * 1.15
    return low, max(high, low * 2)


def _ticks(low: float, high: float) -> list[float]:
    start = math.floor(math.log10(low))
    values = [step * 10.0**power for power in range(start, start + 8) for step in (1.0, 2.0, 5.0)]
    return [value for value in values if low <= value <= high]


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Mean completion time by policy">\n'
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="{INK}"/>'
    )


def _text(
    x: float, y: float, words: str, *, fill: str = TEXT, size: int = 13, font: str = SANS, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-family="{font}" font-size="{size}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _titles(result: StudyResult) -> str:
    config = result.config
    what = (
        f"{config.nodes} nodes, {config.rate:g} requests/s, {pluralize(config.gateways, 'gateway')}, "
        f"heartbeat {config.heartbeat_s:g} s, {pluralize(config.seeds, 'seed')}; logarithmic axis"
    )
    return _text(24, 32, "Mean completion time by policy", size=18) + "\n" + _text(24, 54, what, fill=MUTED)


def _tick(x: float, value: float, bottom: int) -> str:
    line = f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{LINE}"/>'
    return line + _text(x, bottom + 18, f"{value:g} s", fill=MUTED, size=12, font=MONO, anchor="middle")


def _row(y: int, name: str, runs: Sequence[RunSummary], *, left: int, x: Sequence[float], end: float) -> str:
    colour = VOLT if name in SHIPPED else MUTED
    middle, width = y + ROW / 2, max(1.0, end - left)
    gap = float(np.mean([run.gap_to_oracle for run in runs]))
    words = f"{_mean(runs):.2f} s  {gap:+.0%}"
    return "\n".join(
        (
            _text(left - 12, middle + 4, name, anchor="end"),
            f'<rect x="{left}" y="{middle - BAR / 2}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<line x1="{min(x):.1f}" y1="{middle}" x2="{max(x):.1f}" y2="{middle}" stroke="{TEXT}" stroke-width="2"/>',
            *(f'<circle cx="{cx:.1f}" cy="{middle}" r="3" fill="{SURFACE}" stroke="{TEXT}"/>' for cx in x),
            _text(max(*x, end) + 12, middle + 4, words, font=MONO),
        )
    )


def _mark(x: float, bottom: int, colour: str, words: str, *, above: int) -> str:
    line = f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="2"/>'
    return line + _text(x + 4, TOP - 12 - above, words, fill=colour, size=12, font=MONO)
