"""Filter, price and rank the nodes of one model at once, with numpy. Pure arithmetic on the numbers of `entries`.

The whole formula is worked out only for nodes that can still be among the best; a part of it, which is quick, says who.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher import filters, formula
from sparewatt.inference.matcher.columns import SCAN_MAX, ColumnField, Floats, NodeColumns
from sparewatt.inference.matcher.hashing import mixed
from sparewatt.inference.matcher.match_query import MatchQuery, Positions, ScanResult, told_of
from sparewatt.inference.matcher.model import REASONS, HealthRules, MatchJob, Rejection
from sparewatt.inference.matcher.rejections import pick_stopped

Bools = NDArray[np.bool_]
Score = Callable[[Floats], tuple[Floats, ...]]
GIB = float(1 << 30)
NEAR = 256
"""Places that get the whole formula at first: enough to hold the best 8 nearly always, few enough to cost little."""
SAMPLED = 8
"""One place in so many is looked at to guess where the NEAR lowest end."""
BLOCK = 2048
"""Places whose numbers fit into the processor's second cache."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Per reason the places that it stopped first, and the places that nothing stopped."""

    stopped: dict[Rejection, Bools]
    able: Bools


def eligible(job: MatchJob, data: Floats, *, now_s: float, rules: HealthRules) -> Scan:
    ask = MatchQuery(
        float(job.prompt_tokens),
        float(job.output_tokens),
        float(job.prompt_tokens_floor),
        gone_since_s=now_s - rules.offline_after_s,
    )
    able: Bools = filters.is_able(ask, data)
    stops = np.full(able.size, -1)
    stopped = np.flatnonzero(~able)
    stops[stopped] = filters.first_stops(ask, data[:, stopped])
    return Scan({reason: stops == number for number, reason in enumerate(REASONS) if number in stops}, able)


def neuralgrid_parts(job: MatchJob, data: Floats) -> tuple[Floats, ...]:
    """NeuralGrid's scoreNode as published; the score is the sum, -1 when offline or too small."""
    context = job.prompt_tokens + job.output_tokens
    min_vram = np.maximum(1.0, data[ColumnField.WEIGHTS_BYTES] + data[ColumnField.KV_BYTES_PER_TOKEN] * context) / GIB
    vram = data[ColumnField.VRAM_BYTES] / GIB
    fits = (vram >= min_vram) & (data[ColumnField.CONNECTED] != 0)
    return (
        np.where(fits, 0.3 * (vram / min_vram), -1.0),
        np.where(fits, 0.5 * (data[ColumnField.TFLOPS] / 100), 0.0),
        np.where(fits, 0.2 * (1 / (data[ColumnField.HOURLY_USD] + 0.01)), 0.0),
    )


def rank(
    job: MatchQuery, entries: NodeColumns, named: Positions, tried: Positions, *, k: int, score: Score | None = None
) -> ScanResult:
    """The best k of the places that are named, or of all."""
    able: Bools = _over(entries, named, partial(filters.is_able, job))
    counts, stops = _stops(job, entries, named, able, tried)
    if score is None and able.size > 2 * NEAR:
        low = _over(entries, named, partial(formula.at_least, job))
        if any(counts):
            low[~able] = np.inf
        best, lines = best_of_many(job, entries, named, low, k=k)
    else:
        places = _named(named, np.flatnonzero(able))
        best, lines = best_of(job, entries, places, k=k) if score is None else best_by(score, job, entries, places, k=k)
    told = told_of(best, lines)
    if not any(counts):
        return ScanResult(told, best.size)
    return ScanResult(told, best.size, tuple(counts), pick_stopped(entries, stops, named))


def _named(named: Positions, chosen: NDArray[np.intp]) -> Positions:
    """Places by their number among those that are named; if none are, that is the place."""
    return named[chosen] if named.size else chosen


def _over(entries: NodeColumns, named: Positions, function: Callable[[Floats], NDArray[Any]]) -> NDArray[Any]:
    """What the function makes of the named places' columns, or of all; in blocks, where they are very many."""
    n = len(entries)
    if named.size and (named.size <= 2 * NEAR or n <= SCAN_MAX):
        return function(entries.numbers[named].T)
    if n <= SCAN_MAX:
        return function(entries.data)
    whole = np.concatenate([function(entries.numbers[first : min(n, first + BLOCK)].T) for first in range(0, n, BLOCK)])
    return whole[named] if named.size else whole


def _stops(
    job: MatchQuery, entries: NodeColumns, named: Positions, able: Bools, tried: Positions
) -> tuple[list[int], NDArray[np.int8]]:
    """What stopped each place, counted. Those that were tried are taken out of `able`."""
    stops = np.full(able.size, -1, np.int8)
    counts = [0] * len(REASONS)
    if not able.all():
        stopped = np.flatnonzero(~able)
        found = filters.first_stops(job, entries.numbers[_named(named, stopped)].T)
        stops[stopped] = found
        counts = np.bincount(found, minlength=len(REASONS)).tolist()
    if tried.size:
        again = np.flatnonzero(able & np.isin(named if named.size else np.arange(able.size), tried))
        stops[again], able[again], counts[filters.TRIED] = filters.TRIED, False, again.size
    return counts, stops


def best_of_many(
    job: MatchQuery, entries: NodeColumns, named: Positions, low: Floats, *, k: int
) -> tuple[Positions, Floats]:
    """The best k, given what each place costs at least (infinity: not to be had)."""
    sample = np.sort(low[::SAMPLED])
    guess = min(float(sample[min(sample.size - 1, (k + NEAR) // SAMPLED)]), formula.LARGEST)
    best, lines = best_of(job, entries, _named(named, np.flatnonzero(low <= guess)), k=k)
    limit = float(formula.to_us(lines[-1, 0]) + 1.0) * 1e-6 if len(lines) == k else formula.LARGEST
    if limit <= guess:
        return best, lines
    return best_of(job, entries, _named(named, np.flatnonzero(low <= limit)), k=k)


def best_of(job: MatchQuery, entries: NodeColumns, places: Positions, *, k: int) -> tuple[Positions, Floats]:
    """The best k of these places, by the whole formula."""
    x = np.ascontiguousarray(entries.numbers[places].T)
    parts = formula.parts(job, x)
    base = formula.total(job, parts)
    jitter = base * job.jitter * mixed(entries.all_hashes[places], job.start)
    order = ranked(base + jitter, entries, places, k=k)
    chosen = np.array(parts)[:, order]
    told = formula.summary(job, chosen, jitter[order], x[:, order])
    weighted = chosen * np.array(job.weights)[:, None]
    return places[order], np.vstack((*told, weighted, jitter[order])).T


def ranked(cost: Floats, entries: NodeColumns, places: Positions, *, k: int) -> Positions:
    """The k lowest, in order: to the microsecond, then by node id, all 160 bits of it."""
    rounded = formula.to_us(cost)
    among = np.arange(rounded.size)
    if rounded.size > k:
        among = np.flatnonzero(rounded <= np.partition(rounded, k - 1)[k - 1])
    high, middle, low = entries.ids[places[among]].T
    order: Positions = among[np.lexsort((low, middle, high, rounded[among]))[:k]]
    return order


def best_by(
    score: Score, job: MatchQuery, entries: NodeColumns, places: Positions, *, k: int
) -> tuple[Positions, Floats]:
    """The k of the highest score, with its parts; the predictions beside it are those of the formula."""
    x = entries.numbers[places].T
    parts = np.array(score(x))
    cost = -sum(parts[1:], parts[0])
    order = ranked(cost, entries, places, k=k)
    none = np.zeros(order.size)
    _, *told = formula.summary(job, formula.parts(job, x[:, order]), none, x[:, order])
    return places[order], np.vstack((cost[order], *told, parts[:, order], none)).T
