"""Filter, price and rank the nodes of one model at once, with numpy. Pure arithmetic on the numbers of `entries`.

The whole formula is worked out only for nodes that can still be among the best: a part of it, which is quick, tells who.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher import filters, formula
from sparewatt.inference.matcher.entries import SCAN_MAX, Entries, Field, Floats
from sparewatt.inference.matcher.formula import JobNumbers, Moment
from sparewatt.inference.matcher.hashing import mixed
from sparewatt.inference.matcher.model import HealthRules, MatchJob, Rejection
from sparewatt.inference.matcher.ranking import Places, Question, Ranking
from sparewatt.inference.matcher.situation import Situation

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
    demand = filters.demand_of(job, Situation(now_s, rules))
    able: Bools = filters.is_able(demand, data)
    stops = np.full(able.size, -1)
    stopped = np.flatnonzero(~able)
    stops[stopped] = filters.first_stops(demand, data[:, stopped])
    return Scan({reason: stops == number for number, reason in enumerate(filters.REASONS) if number in stops}, able)


def balanced_parts(job: JobNumbers, data: Floats, *, now_s: float, rules: HealthRules) -> tuple[Floats, ...]:
    """The columns of `formula.PARTS`, in its order."""
    parts: tuple[Floats, ...] = formula.parts(job, Moment(now_s, now_s - rules.suspect_after_s), data)
    return parts


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


def rank(ask: Question, entries: Entries, named: Places, tried: Places, score: Score | None = None) -> Ranking:
    """The best k of the places that are named, or of all."""
    places = named if named.size else np.arange(len(entries))
    able: Bools = _over(entries, named, partial(filters.is_able, ask.demand))
    stops = _stops(ask, entries, places, able, tried)
    scores = None
    if score is not None:
        best, lines, scores = best_by_score(ask, entries, places[able], score)
    elif places.size > 2 * NEAR:
        low = _over(entries, named, partial(formula.at_least, ask.numbers))
        low[~able] = np.inf
        best, lines = best_of_many(ask, entries, places, low)
    else:
        best, lines = best_of(ask, entries, places[able])
    counts = np.bincount(stops + 1, minlength=len(filters.REASONS) + 1)[1:]
    return Ranking(best, lines, counts, stops, scores)


def _over(entries: Entries, named: Places, function: Callable[[Floats], NDArray[Any]]) -> NDArray[Any]:
    """What the function makes of the named places' columns, or of all; in blocks, where they are very many."""
    n = len(entries)
    if named.size and (named.size <= 2 * NEAR or n <= SCAN_MAX):
        return function(entries.numbers[named].T)
    if n <= SCAN_MAX:
        return function(entries.data)
    whole = np.concatenate([function(entries.numbers[first : min(n, first + BLOCK)].T) for first in range(0, n, BLOCK)])
    return whole[named] if named.size else whole


def _stops(ask: Question, entries: Entries, places: Places, able: Bools, tried: Places) -> NDArray[np.int8]:
    """What stopped each place. Those that were tried are taken out of `able`."""
    stops = np.full(able.size, -1, np.int8)
    if not able.all():
        stopped = np.flatnonzero(~able)
        stops[stopped] = filters.first_stops(ask.demand, entries.numbers[places[stopped]].T)
    if tried.size:
        again = np.flatnonzero(able & np.isin(places, tried))
        stops[again] = filters.TRIED
        able[again] = False
    return stops


def best_of_many(ask: Question, entries: Entries, places: Places, low: Floats) -> tuple[Places, Floats]:
    """The best k of the places, given what each costs at least (infinity: not to be had)."""
    sample = np.sort(low[::SAMPLED])
    guess = min(float(sample[min(sample.size - 1, (ask.k + NEAR) // SAMPLED)]), formula.LARGEST)
    best, lines = best_of(ask, entries, places[low <= guess])
    limit = _highest(lines, ask.k)
    return best_of(ask, entries, places[low <= limit]) if limit > guess else (best, lines)


def _highest(lines: Floats, k: int) -> float:
    """What nobody outside may undercut for these to be the best k: the last, and a microsecond for the rounding."""
    return float(formula.to_us(lines[-1, 0]) + 1.0) * 1e-6 if len(lines) == k else formula.LARGEST


def best_of(ask: Question, entries: Entries, places: Places) -> tuple[Places, Floats]:
    """The best k of these places, by cost to the microsecond, then by node id."""
    x = entries.numbers[places].T
    parts = formula.parts(ask.numbers, ask.moment, x)
    jitter = formula.total(ask.numbers, parts) * ask.jitter * mixed(entries.all_hashes[places], np.uint64(ask.start))
    lines = np.array(formula.line(ask.numbers, parts, jitter, x))
    order = ranked(lines[0], entries, places, k=ask.k)
    return places[order], lines[:, order].T


def ranked(cost: Floats, entries: Entries, places: Places, *, k: int) -> Places:
    """The k lowest, in order: to the microsecond, then by node id, all 160 bits of it."""
    rounded = formula.to_us(cost)
    among = np.arange(rounded.size)
    if rounded.size > k:
        among = np.flatnonzero(rounded <= np.partition(rounded, k - 1)[k - 1])
    high, middle, low = entries.ids[places[among]].T
    order: Places = among[np.lexsort((low, middle, high, rounded[among]))[:k]]
    return order


def best_by_score(ask: Question, entries: Entries, places: Places, score: Score) -> tuple[Places, Floats, Floats]:
    """The k of the highest score, with its parts; the predictions beside it are those of the formula."""
    x = entries.numbers[places].T
    parts = np.array(score(x))
    cost = -sum(parts[1:], parts[0])
    order = ranked(cost, entries, places, k=ask.k)
    chosen, none = x[:, order], np.zeros(order.size)
    lines = np.array(formula.line(ask.numbers, formula.parts(ask.numbers, ask.moment, chosen), none, chosen))
    lines[0] = cost[order]
    return places[order], lines.T, parts[:, order].T
