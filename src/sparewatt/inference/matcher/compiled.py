"""The scan as it is compiled: filter, cost and the best k. `make scan` builds the package's libraries from it
(native/build.py, with numba); a gateway loads those (`library`) and never imports this.

The filters and the formula are those of `scan` and `formula`: the same functions, compiled, so both scans give the same
best k, to the bit. A lower bound of every node's cost is computed in columns, several nodes per instruction; only
nodes that can still be among the best are then priced row by row.
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

from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher import scan as rules
from sparewatt.inference.matcher.columns import ID_WORDS, ColumnField
from sparewatt.inference.matcher.model import REJECTED_FIELDS, REJECTED_WIDTH, REJECTIONS_KEPT, SCAN_REJECTIONS
from sparewatt.inference.matcher.scan import FULL, NOT_TIMED, RANKED_WIDTH, SUSPENDED, TRIED, MatchQuery

N_SUMMARY, N_PARTS = len(formula.SUMMARY), len(formula.PARTS)
N_FIELDS, N_REASONS, N_QUERY = len(ColumnField), len(SCAN_REJECTIONS), 10 + N_PARTS
FIELDS, N_REJECTED_FIELDS = np.array(REJECTED_FIELDS), len(REJECTED_FIELDS)
MICROSECOND_S = 1.000001e-6
"""A little more than a microsecond, so that no rounding makes a bound too low."""
jit = numba.njit(error_model="numpy", boundscheck=False, forceinline=True)


def _compile(module: ModuleType, functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """The functions by name, calling each other's compiled form. Each must come after those that it calls."""
    names = dict(vars(module))
    for function in functions:
        if isinstance(function, FunctionType):
            names[function.__name__] = jit(FunctionType(function.__code__, names))
    return names


_filters = _compile(rules, [rules.is_eligible, rules.is_full, rules.is_suspended, *rules.FILTERS.values()])
is_eligible, is_offline, is_draining = _filters["is_eligible"], _filters["is_offline"], _filters["is_draining"]
is_context_too_short, is_vram_too_small = _filters["is_context_too_short"], _filters["is_vram_too_small"]
is_unmeasured, is_full, is_suspended = (_filters[name] for name in ("is_unmeasured", "is_full", "is_suspended"))

_formula = _compile(formula, formula.COMPILED)
parts, total, lower_bound, to_us = (_formula[name] for name in ("parts", "total", "lower_bound", "to_us"))
summary, hash_fraction = _formula["summary"], _formula["hash_fraction"]


@jit
def first_rejection(q: Any, rows: Any, e: int) -> int:
    """As `scan.first_rejections`."""
    reason = NOT_TIMED
    if is_offline(q, rows[e]):
        reason = 0
    elif is_draining(q, rows[e]):
        reason = 1
    elif is_context_too_short(q, rows[e]):
        reason = 2
    elif is_vram_too_small(q, rows[e]):
        reason = 3
    elif is_unmeasured(q, rows[e]):
        reason = 4
    elif is_full(q, rows[e]):
        reason = FULL
    elif is_suspended(q, rows[e]):
        reason = SUSPENDED
    return reason


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
def insert(count: int, cost_us: float, e: int, ids: Any, positions: Any, costs_us: Any) -> int:  # noqa: PLR0917
    """Put a node into the best k, in order; returns how many there are now."""
    at = count
    if count == positions.size:
        at = count - 1
        if not goes_before(cost_us, ids[e], costs_us[at], ids[positions[at]]):
            return count
    while at > 0 and goes_before(cost_us, ids[e], costs_us[at - 1], ids[positions[at - 1]]):
        costs_us[at], positions[at] = costs_us[at - 1], positions[at - 1]
        at -= 1
    costs_us[at], positions[at] = cost_us, e
    n_ranked: int = min(positions.size, count + 1)
    return n_ranked


@jit
def bound_columns(q: Any, columns: Any, n: int, bounds: Any) -> int:
    """A lower bound of each node's cost, infinity if it is not eligible; returns how many are not.

    In two plain loops: the compiler vectorises each of them, and does not vectorise one loop for both.
    """
    out = 0
    for e in range(n):
        bounds[e] = lower_bound(q, columns[:, e])
    for e in range(n):
        can = is_eligible(q, columns[:, e])
        bounds[e] = bounds[e] if can else np.inf
        out += 0 if can else 1
    return out


@jit
def bound_rows(q: Any, rows: Any, n: int, subset: Any, bounds: Any) -> int:
    """The same for a few nodes, row by row."""
    out = 0
    for i in range(n):
        e = subset[i] if subset.size else i
        bounds[e] = np.inf
        if is_eligible(q, rows[e]):
            bounds[e] = lower_bound(q, rows[e])
        else:
            out += 1
    return out


@jit
def reject(  # noqa: PLR0917
    q: Any, rows: Any, n: int, subset: Any, tried: Any, bounds: Any, rejections: Any, counts: Any
) -> None:
    """Write down why each node is rejected, and count the reasons."""
    for i in range(n):
        e = subset[i] if subset.size else i
        rejections[i] = -1 if bounds[e] < np.inf else first_rejection(q, rows, e)
        for t in range(tried.size):
            if tried[t] == e and rejections[i] < 0:
                rejections[i] = TRIED
                bounds[e] = np.inf
        if rejections[i] >= 0:
            counts[rejections[i]] += 1


@jit
def write_costs(q: Any, x: Any, jitter: float, line: Any) -> None:
    """Write SUMMARY, parts and jitter of a ranked node into its row, behind the position."""
    p = parts(q, x)
    figures = summary(q, p, jitter, x)
    for i in range(N_SUMMARY):
        line[1 + i] = figures[i]
    for i in range(N_PARTS):
        line[1 + N_SUMMARY + i] = q.weights[i] * p[i]
    line[1 + N_SUMMARY + N_PARTS] = jitter


@jit
def rank(  # noqa: PLR0917
    q: Any, rows: Any, hashes: Any, ids: Any, n: int, subset: Any, bounds: Any, positions: Any, lines: Any
) -> int:
    """Fill `positions` and `lines` with the best nodes in order.

    A node gets the whole formula only if its lower bound, jitter included, is below the worst of the best k so far.
    """
    costs_us = lines[:, 1]
    count, worst_us, limit = 0, np.inf, np.inf
    for i in range(n):
        e = subset[i] if subset.size else i
        least = bounds[e]
        if least < limit:
            chance = hash_fraction(hashes[e], q.jitter_seed)
            if least + least * q.jitter * chance < limit:
                base = total(q, parts(q, rows[e]))
                cost_us = to_us(base + base * q.jitter * chance)
                if cost_us <= worst_us:
                    count = insert(count, cost_us, e, ids, positions, costs_us)
                    if count == positions.size:
                        worst_us = costs_us[count - 1]
                        limit = (worst_us + 1.0) * MICROSECOND_S
    for best in range(count):
        e = positions[best]
        base = total(q, parts(q, rows[e]))
        lines[best, 0] = e
        write_costs(q, rows[e], base * q.jitter * hash_fraction(hashes[e], q.jitter_seed), lines[best])
    return count


@jit
def lowest_rejected(rejections: Any, subset: Any, hashes: Any, picks: Any) -> int:
    """Fill `picks` with the indices of the rejected nodes of the lowest hashes; returns how many."""
    found, worst, highest = 0, 0, np.uint64(0)
    for i in range(rejections.size):
        if rejections[i] < 0:
            continue
        own = hashes[subset[i] if subset.size else i]
        if found < picks.size:
            picks[found] = i
            if found == 0 or own > highest:
                worst, highest = found, own
            found += 1
        elif own < highest:
            picks[worst] = i
            highest = own
            for j in range(found):
                other = hashes[subset[picks[j]] if subset.size else picks[j]]
                if other > highest:
                    worst, highest = j, other
    return found


@jit
def write_rejected(rejections: Any, subset: Any, hashes: Any, rows: Any, picks: Any, lines: Any) -> int:  # noqa: PLR0917
    """Fill `picks` and `lines` with some rejected nodes in order, as `scan.pack_rejected`."""
    found = lowest_rejected(rejections, subset, hashes, picks)
    for n in range(1, found):
        i, at = picks[n], n
        own = hashes[subset[i] if subset.size else i]
        while at > 0 and hashes[subset[picks[at - 1]] if subset.size else picks[at - 1]] > own:
            picks[at] = picks[at - 1]
            at -= 1
        picks[at] = i
    for n in range(found):
        e = subset[picks[n]] if subset.size else picks[n]
        lines[n, 0], lines[n, 1] = e, rejections[picks[n]]
        for j in range(N_REJECTED_FIELDS):
            lines[n, 2 + j] = rows[e, FIELDS[j]]
    return found


# The entry point. Memory comes as plain addresses: handing over arrays would take longer than a scan.


def _pointer(_: Any, address: Any) -> Any:
    """An address as a pointer: for numba, its type and how to make it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return numba.types.voidptr(address), generate


memory_at: Any = intrinsic(_pointer)


@jit
def read_query(address: int) -> Any:
    """The query as `kernel` packed it."""
    a, seed = carray(memory_at(address), (N_QUERY,), np.float64), carray(memory_at(address), (N_QUERY,), np.uint64)[0]
    weights = (a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19])
    return MatchQuery(a[1], a[2], a[3], a[4], weights, a[5], a[6], a[7], a[8], seed, a[9])


@jit
def scan(  # noqa: PLR0917
    rows_at: int, columns_at: int, capacity: int, hashes_at: int, ids_at: int, n_nodes: int,
    subset_at: int, n_subset: int, tried_at: int, n_tried: int, k: int,
    query_at: int, bounds_at: int, positions_at: int, lines_at: int, counts_at: int, rejections_at: int,
    picks_at: int, rejected_at: int,
) -> int:  # fmt: skip
    """Rank the subset, or all nodes. Fills everything from `bounds_at` on, the last three only if a node was rejected.

    Reads columns unless there are none (`capacity` is 0). The last two of the counts are how many nodes were rejected,
    and how many of them were written.
    """
    q = read_query(query_at)
    rows = carray(memory_at(rows_at), (n_nodes, N_FIELDS), np.float64)
    bounds = carray(memory_at(bounds_at), (n_nodes,), np.float64)
    subset, tried = (
        carray(memory_at(subset_at), (n_subset,), np.int64),
        carray(memory_at(tried_at), (n_tried,), np.int64),
    )
    n = n_subset or n_nodes
    if capacity:
        out = bound_columns(q, carray(memory_at(columns_at), (N_FIELDS, capacity), np.float64), n_nodes, bounds)
    else:
        out = bound_rows(q, rows, n, subset, bounds)
    hashes = carray(memory_at(hashes_at), (n_nodes,), np.uint64)
    counts = carray(memory_at(counts_at), (N_REASONS + 2,), np.int64)
    counts[:] = 0
    if out or n_tried:
        rejections = carray(memory_at(rejections_at), (n,), np.int8)
        reject(q, rows, n, subset, tried, bounds, rejections, counts)
        counts[N_REASONS] = counts.sum()
        if counts[N_REASONS]:
            picks = carray(memory_at(picks_at), (REJECTIONS_KEPT,), np.int64)
            rejected = carray(memory_at(rejected_at), (REJECTIONS_KEPT, REJECTED_WIDTH), np.float64)
            counts[N_REASONS + 1] = write_rejected(rejections, subset, hashes, rows, picks, rejected)
    ids = carray(memory_at(ids_at), (n_nodes, ID_WORDS), np.uint64)
    positions, lines = (
        carray(memory_at(positions_at), (k,), np.int64),
        carray(memory_at(lines_at), (k, RANKED_WIDTH), np.float64),
    )
    n_ranked: int = rank(q, rows, hashes, ids, n, subset, bounds, positions, lines)
    return n_ranked


@numba.njit(error_model="numpy", boundscheck=False)
def entry(call_at: int) -> int:
    """What the library exports: `scan` with its arguments read from memory, as `kernel` packed them."""
    a = carray(memory_at(call_at), (19,), np.int64)
    n_ranked: int = scan(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
        a[17], a[18],
    )  # fmt: skip
    return n_ranked
