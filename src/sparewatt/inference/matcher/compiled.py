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

N_LINE = len(formula.LINE)
FULL, TRIED = filters.FULL, filters.TRIED
jit = numba.njit(error_model="numpy", boundscheck=False)


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
parts, total, at_least, to_us, line = (_terms[name] for name in ("parts", "total", "at_least", "to_us", "line"))

mixed = _compiled(hashing, [hashing.mixed])["mixed"]


@jit
def first_stop(demand: Any, x: Any) -> int:
    """As `filters.first_stops`."""
    stop = FULL
    if is_offline(demand, x):
        stop = 0
    elif is_draining(demand, x):
        stop = 1
    elif is_too_short(demand, x):
        stop = 2
    elif is_too_small(demand, x):
        stop = 3
    elif is_unmeasured(demand, x):
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
def insert(found: int, cost_us: float, e: int, ids: Any, best: Any) -> int:
    """Put a place into the best k, in order; returns how many there are now."""
    places, costs_us = best
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
def holds(places: Any, wanted: int) -> bool:
    for place in places:
        if place == wanted:
            return True
    return False


@jit
def tell(  # noqa: PLR0917
    numbers: Any, hashes: Any, job: Any, moment: Any, jitter: float, start: Any, places: Any, lines: Any
) -> None:
    for rank, e in enumerate(places):
        p = parts(job, moment, numbers[e])
        said = line(job, p, total(job, p) * jitter * mixed(hashes[e], start), numbers[e])
        for i in range(N_LINE):
            lines[rank, i] = said[i]


@jit
def scan(  # noqa: PLR0917 (called by `kernel` alone)
    numbers: Any, hashes: Any, ids: Any, n_places: int, named: Any, tried: Any,
    job: Any, moment: Any, demand: Any, jitter: float, start: Any,
    best: Any, lines: Any, stops: Any, counts: Any,
) -> int:  # fmt: skip
    """Fill the last four and return how many were found; all places are looked at if none are named."""
    costs_us = best[1]
    found, worst_us = 0, np.inf
    n = named.size
    for i in range(n or n_places):
        e = named[i] if n else i
        x = numbers[e]
        stops[i] = -1
        if not is_able(demand, x):
            stops[i] = first_stop(demand, x)
        elif holds(tried, e):
            stops[i] = TRIED
        if stops[i] >= 0:
            counts[stops[i]] += 1
        elif to_us(at_least(job, x)) <= worst_us:
            base = total(job, parts(job, moment, x))
            cost_us = to_us(base + base * jitter * mixed(hashes[e], start))
            if cost_us <= worst_us:
                found = insert(found, cost_us, e, ids, best)
                worst_us = costs_us[found - 1] if found == costs_us.size else np.inf
    tell(numbers, hashes, job, moment, jitter, start, best[0][:found], lines)
    return found
