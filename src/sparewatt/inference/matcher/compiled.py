"""The scan compiled: one pass over the places, filter, cost and the best k kept on the way. Imported only with numba.

The rules and the formula are those of `filters`, `formula` and `hashing`: the same functions, compiled. So both scans
give the same best k, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from sparewatt.inference.matcher import filters, formula, hashing

N_SUMMARY, N_PARTS = len(formula.SUMMARY), len(formula.PARTS)
FULL, TRIED = filters.FULL, filters.TRIED
jit = numba.njit(error_model="numpy", boundscheck=False, forceinline=True)


def _compiled(module: ModuleType, functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """The functions, by name, calling each other's compiled form. Given in the order in which they need each other."""
    names = dict(vars(module))
    for function in functions:
        if isinstance(function, FunctionType):
            names[function.__name__] = jit(FunctionType(function.__code__, names))
    return names


_rules = _compiled(filters, [filters.is_able, *filters.RULES.values()])
is_able, is_offline, is_draining = _rules["is_able"], _rules["is_offline"], _rules["is_draining"]
is_too_short, is_too_small, is_unmeasured = _rules["is_too_short"], _rules["is_too_small"], _rules["is_unmeasured"]

_terms = _compiled(formula, formula.COMPILED)
parts, total, at_least, to_us, summary = (_terms[name] for name in ("parts", "total", "at_least", "to_us", "summary"))

mixed = _compiled(hashing, [hashing.mixed])["mixed"]


@jit
def first_stop(job: Any, numbers: Any, e: int) -> int:
    """As `filters.first_stops`."""
    stop = FULL
    if is_offline(job, numbers[e]):
        stop = 0
    elif is_draining(job, numbers[e]):
        stop = 1
    elif is_too_short(job, numbers[e]):
        stop = 2
    elif is_too_small(job, numbers[e]):
        stop = 3
    elif is_unmeasured(job, numbers[e]):
        stop = 4
    return stop


@jit
def goes_before(cost_us: float, id_: Any, other_us: float, other_id: Any) -> bool:
    """By cost, then by the node's id, all 160 bits of it."""
    if cost_us != other_us:
        return cost_us < other_us
    for word in range(id_.size):
        if id_[word] != other_id[word]:
            before: bool = id_[word] < other_id[word]
            return before
    return False


@jit
def insert(found: int, cost_us: float, e: int, ids: Any, places: Any, costs_us: Any) -> int:  # noqa: PLR0917
    """Put a place into the best k, in order; returns how many there are now."""
    at = found
    if found == places.size:
        at = found - 1
        if not goes_before(cost_us, ids[e], costs_us[at], ids[places[at]]):
            return found
    while at > 0 and goes_before(cost_us, ids[e], costs_us[at - 1], ids[places[at - 1]]):
        costs_us[at], places[at] = costs_us[at - 1], places[at - 1]
        at -= 1
    costs_us[at], places[at] = cost_us, e
    n_found: int = min(places.size, found + 1)
    return n_found


@jit
def filter_out(job: Any, numbers: Any, n: int, named: Any, tried: Any, stops: Any, counts: Any) -> None:  # noqa: PLR0917
    """Write down what stops each place. Nearly all are able, so that is all the first loop asks."""
    for i in range(n):
        stops[i] = -1 if is_able(job, numbers[named[i] if named.size else i]) else FULL
    for i in range(n):
        e = named[i] if named.size else i
        if stops[i] == FULL:
            stops[i] = first_stop(job, numbers, e)
        for t in range(tried.size):
            if tried[t] == e and stops[i] < 0:
                stops[i] = TRIED
        if stops[i] >= 0:
            counts[stops[i]] += 1


@jit
def tell(job: Any, x: Any, jitter: float, line: Any) -> None:
    """What is told about a candidate, into its line."""
    p = parts(job, x)
    said = summary(job, p, jitter, x)
    for i in range(N_SUMMARY):
        line[i] = said[i]
    for i in range(N_PARTS):
        line[N_SUMMARY + i] = job.weights[i] * p[i]
    line[N_SUMMARY + N_PARTS] = jitter


@jit
def scan(  # noqa: PLR0917 (called by `kernel` alone)
    job: Any, numbers: Any, hashes: Any, ids: Any, n_places: int, named: Any, tried: Any,
    places: Any, lines: Any, stops: Any, counts: Any,
) -> int:  # fmt: skip
    """Fill the last four and return how many were found; all places are looked at if none are named."""
    costs_us = lines[:, 0]
    found, worst_us = 0, np.inf
    n = named.size or n_places
    filter_out(job, numbers, n, named, tried, stops, counts)
    for i in range(n):
        e = named[i] if named.size else i
        if stops[i] < 0 and to_us(at_least(job, numbers[e])) <= worst_us:
            base = total(job, parts(job, numbers[e]))
            cost_us = to_us(base + base * job.jitter * mixed(hashes[e], job.start))
            if cost_us <= worst_us:
                found = insert(found, cost_us, e, ids, places, costs_us)
                worst_us = costs_us[found - 1] if found == places.size else np.inf
    for rank in range(found):
        e = places[rank]
        base = total(job, parts(job, numbers[e]))
        tell(job, numbers[e], base * job.jitter * mixed(hashes[e], job.start), lines[rank])
    return found


@jit
def lowest_stopped(stops: Any, named: Any, hashes: Any, places: Any) -> int:
    """Of the places that something stopped, those of the lowest hashes, into the last; how many."""
    found, worst = 0, 0
    for i in range(stops.size):
        if stops[i] < 0:
            continue
        e = named[i] if named.size else i
        if found < places.size:
            places[found] = e
            worst = found if hashes[e] > hashes[places[worst]] else worst
            found += 1
        elif hashes[e] < hashes[places[worst]]:
            places[worst] = e
            for j in range(found):
                worst = j if hashes[places[j]] > hashes[places[worst]] else worst
    return found


@jit
def pick_stopped(  # noqa: PLR0917 (called by `kernel` alone)
    stops: Any, named: Any, hashes: Any, numbers: Any, told: Any, places: Any, lines: Any
) -> int:
    """The same in order, and what is told of each: fill the last two."""
    found = lowest_stopped(stops, named, hashes, places)
    for i in range(1, found):
        e, at = places[i], i
        while at > 0 and hashes[places[at - 1]] > hashes[e]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = e
    for i in range(found):
        for j in range(told.size):
            lines[i, j] = numbers[places[i], told[j]]
    return found
