"""The scan compiled: filter, cost and the best k. Imported only with numba.

The rules and the formula are those of `filters`, `formula` and `hashing`: the same functions, compiled. So both scans
give the same best k, to the bit. What all nodes cost at least is worked out in columns, several nodes in one step;
only who can still be among the best is then looked at by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from sparewatt.core.limits import REJECTIONS_KEPT
from sparewatt.inference.matcher import filters, formula, hashing
from sparewatt.inference.matcher.columns import ID_WORDS, ColumnField
from sparewatt.inference.matcher.match_query import WIDTH, MatchQuery
from sparewatt.inference.matcher.model import REASONS, TOLD_OF_STOPPED

N_SUMMARY, N_PARTS = len(formula.SUMMARY), len(formula.PARTS)
N_FIELDS, N_REASONS, N_ASK = len(ColumnField), len(REASONS), 10 + N_PARTS
TOLD, N_TOLD = np.array(TOLD_OF_STOPPED), len(TOLD_OF_STOPPED)
FULL, TRIED = filters.FULL, filters.TRIED
SECONDS = 1.000001e-6
"""A microsecond, and so much more that no rounding makes a bound too low."""
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
def bound_columns(job: Any, columns: Any, n: int, low: Any) -> int:
    """What each place costs at least, infinity if it cannot have the job; how many cannot.

    In two plain loops: the compiler makes steps of several places out of each, and of one loop for both it does not.
    """
    out = 0
    for e in range(n):
        low[e] = at_least(job, columns[:, e])
    for e in range(n):
        can = is_able(job, columns[:, e])
        low[e] = low[e] if can else np.inf
        out += 0 if can else 1
    return out


@jit
def bound_rows(job: Any, numbers: Any, n: int, named: Any, low: Any) -> int:
    """The same of a few."""
    out = 0
    for i in range(n):
        e = named[i] if named.size else i
        low[e] = np.inf
        if is_able(job, numbers[e]):
            low[e] = at_least(job, numbers[e])
        else:
            out += 1
    return out


@jit
def filter_out(  # noqa: PLR0917
    job: Any, numbers: Any, n: int, named: Any, tried: Any, low: Any, stops: Any, counts: Any
) -> None:
    """Write down what stops each place, and count it."""
    for i in range(n):
        e = named[i] if named.size else i
        stops[i] = -1 if low[e] < np.inf else first_stop(job, numbers, e)
        for t in range(tried.size):
            if tried[t] == e and stops[i] < 0:
                stops[i] = TRIED
                low[e] = np.inf
        if stops[i] >= 0:
            counts[stops[i]] += 1


@jit
def tell(job: Any, x: Any, jitter: float, line: Any) -> None:
    """What is told about a candidate, into its line behind the place."""
    p = parts(job, x)
    said = summary(job, p, jitter, x)
    for i in range(N_SUMMARY):
        line[1 + i] = said[i]
    for i in range(N_PARTS):
        line[1 + N_SUMMARY + i] = job.weights[i] * p[i]
    line[1 + N_SUMMARY + N_PARTS] = jitter


@jit
def rank(  # noqa: PLR0917
    job: Any, numbers: Any, hashes: Any, ids: Any, n: int, named: Any, low: Any, places: Any, lines: Any
) -> int:
    """The best places in order, and what is told of each: fill the last two.

    A place gets the whole formula only if what it costs at least, chance included, is not too much already.
    """
    costs_us = lines[:, 1]
    found, worst_us, limit = 0, np.inf, np.inf
    for i in range(n):
        e = named[i] if named.size else i
        least = low[e]
        if least < limit:
            chance = mixed(hashes[e], job.start)
            if least + least * job.jitter * chance < limit:
                base = total(job, parts(job, numbers[e]))
                cost_us = to_us(base + base * job.jitter * chance)
                if cost_us <= worst_us:
                    found = insert(found, cost_us, e, ids, places, costs_us)
                    if found == places.size:
                        worst_us = costs_us[found - 1]
                        limit = (worst_us + 1.0) * SECONDS
    for best in range(found):
        e = places[best]
        base = total(job, parts(job, numbers[e]))
        lines[best, 0] = e
        tell(job, numbers[e], base * job.jitter * mixed(hashes[e], job.start), lines[best])
    return found


@jit
def lowest_stopped(stops: Any, named: Any, hashes: Any, picks: Any) -> int:
    """Of those that something stopped, the numbers of those of the lowest hashes, into the last; how many."""
    found, worst, highest = 0, 0, np.uint64(0)
    for i in range(stops.size):
        if stops[i] < 0:
            continue
        own = hashes[named[i] if named.size else i]
        if found < picks.size:
            picks[found] = i
            if found == 0 or own > highest:
                worst, highest = found, own
            found += 1
        elif own < highest:
            picks[worst] = i
            highest = own
            for j in range(found):
                other = hashes[named[picks[j]] if named.size else picks[j]]
                if other > highest:
                    worst, highest = j, other
    return found


@jit
def pick_stopped(stops: Any, named: Any, hashes: Any, numbers: Any, picks: Any, lines: Any) -> int:  # noqa: PLR0917
    """The same in order, and what is told of each: fill the last two, as `stopped.pick_stopped`."""
    found = lowest_stopped(stops, named, hashes, picks)
    for n in range(1, found):
        i, at = picks[n], n
        own = hashes[named[i] if named.size else i]
        while at > 0 and hashes[named[picks[at - 1]] if named.size else picks[at - 1]] > own:
            picks[at] = picks[at - 1]
            at -= 1
        picks[at] = i
    for n in range(found):
        e = named[picks[n]] if named.size else picks[n]
        lines[n, 0], lines[n, 1] = e, stops[picks[n]]
        for j in range(N_TOLD):
            lines[n, 2 + j] = numbers[e, TOLD[j]]
    return found


# What is called from outside. Memory comes as plain addresses: handing over arrays would take longer than a scan.


def _pointer(_: Any, address: Any) -> Any:
    """An address as a pointer: for numba, its type and how to make it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return numba.types.voidptr(address), generate


memory_at: Any = intrinsic(_pointer)


@jit
def question_at(ask: int) -> Any:
    """As `kernel` has written it down."""
    a, start = carray(memory_at(ask), (N_ASK,), np.float64), carray(memory_at(ask), (N_ASK,), np.uint64)[0]
    weights = (a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20])
    return MatchQuery(a[1], a[2], a[3], a[4], a[5], weights, a[6], a[7], a[8], a[9], start)


@numba.njit("int64(" + ", ".join(["int64"] * 19) + ")", error_model="numpy")
def scan(  # noqa: PLR0917
    numbers: int, columns: int, capacity: int, hashes: int, ids: int, n_places: int,
    named: int, n_named: int, tried: int, n_tried: int, k: int,
    ask: int, low: int, places: int, lines: int, counts: int, stops: int, picks: int, stopped: int,
) -> int:  # fmt: skip
    """Rank the named places, or all. All from `low` on is filled, the last three only if something stopped somebody.

    Columns are looked at unless there are none (`capacity` is 0). The last two of `counts` say how many were stopped,
    and of how many `stopped` tells.
    """
    job = question_at(ask)
    x = carray(memory_at(numbers), (n_places, N_FIELDS), np.float64)
    least = carray(memory_at(low), (n_places,), np.float64)
    who, again = carray(memory_at(named), (n_named,), np.int64), carray(memory_at(tried), (n_tried,), np.int64)
    n = n_named or n_places
    if capacity:
        out = bound_columns(job, carray(memory_at(columns), (N_FIELDS, capacity), np.float64), n_places, least)
    else:
        out = bound_rows(job, x, n, who, least)
    hashed = carray(memory_at(hashes), (n_places,), np.uint64)
    counted = carray(memory_at(counts), (N_REASONS + 2,), np.int64)
    counted[:] = 0
    if out or n_tried:
        why = carray(memory_at(stops), (n,), np.int8)
        filter_out(job, x, n, who, again, least, why, counted)
        counted[N_REASONS] = counted.sum()
        if counted[N_REASONS]:
            some = carray(memory_at(picks), (REJECTIONS_KEPT,), np.int64)
            said = carray(memory_at(stopped), (REJECTIONS_KEPT, 2 + N_TOLD), np.float64)
            counted[N_REASONS + 1] = pick_stopped(why, who, hashed, x, some, said)
    names = carray(memory_at(ids), (n_places, ID_WORDS), np.uint64)
    best, told = carray(memory_at(places), (k,), np.int64), carray(memory_at(lines), (k, WIDTH), np.float64)
    found: int = rank(job, x, hashed, names, n, who, least, best, told)
    return found
