"""The scan: filter the nodes of one model, price those that are left, pick the best k. With numpy; `compiled` is its
twin with numba. Both use the filters of this module and the functions of `formula`, and give the same k, to the bit.

Of many nodes most are priced by a lower bound only, and the whole formula runs on the few that can still be among the
best. Nodes are named by their positions in `NodeColumns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher.columns import SCAN_MAX, ColumnField, Floats, NodeColumns, Positions
from sparewatt.inference.matcher.formula import PARTS, SUMMARY, UNIT_WEIGHTS, hash_fraction
from sparewatt.inference.matcher.model import REJECTED_FIELDS, REJECTIONS_KEPT, SCAN_REJECTIONS, MatchJob, Rejection
from sparewatt.inference.matcher.node_row import HealthRules

Bools = NDArray[np.bool_]
Score = Callable[[Floats], tuple[Floats, ...]]
GIB = float(1 << 30)
RANKED_WIDTH = 1 + len(SUMMARY) + len(PARTS) + 1
"""Numbers per ranked node: its position, SUMMARY, parts, jitter."""
PRICED_FIRST = 256
"""Nodes that get the whole formula at first: enough to hold the best 8 nearly always, few enough to cost little."""
SAMPLED_SHARE = 8
"""One bound in so many is looked at to guess where the PRICED_FIRST lowest end."""
BLOCK = 2048
"""Nodes whose numbers fit into the processor's second-level cache."""


class MatchQuery(NamedTuple):
    """All that decides a match besides the nodes' numbers: job, time and chance. Flat, for compiled code."""

    prompt_tokens: float
    output_tokens: float
    prompt_tokens_floor: float = 0.0
    """The least that the prompt can hold."""
    usd_weight: float = 0.0
    """Seconds that a dollar is worth."""
    weights: tuple[float, ...] = UNIT_WEIGHTS
    """The weight of each part of the cost; 1 unless the request says otherwise."""
    now_s: float = 0.0
    suspect_before_s: float = -np.inf
    """A node that was last heard then or before is suspect."""
    offline_before_s: float = -np.inf
    """A node that was last heard then or before is offline."""
    jitter: float = 0.0
    jitter_seed: int = 0
    standing: float = 0.0
    """The least `Standing` that a node must have."""


class ScanResult(NamedTuple):
    rows: bytes
    """A row of doubles per ranked node, best first: position, SUMMARY, parts, jitter."""
    n_ranked: int
    rejected_counts: Sequence[int] = ()
    """By SCAN_REJECTIONS; empty if no node was rejected."""
    rejected_rows: bytes = b""
    """A row for some of the rejected nodes: position, index of the reason, REJECTED_FIELDS."""

    @property
    def positions(self) -> Positions:
        positions: Positions = self._numbers()[:, 0].astype(np.int64)
        return positions

    @property
    def costs(self) -> Floats:
        """SUMMARY, parts and jitter of each."""
        return self._numbers()[:, 1:]

    def _numbers(self) -> Floats:
        return np.frombuffer(self.rows).reshape(self.n_ranked, -1 if self.n_ranked else RANKED_WIDTH)


def pack_ranked(positions: Positions, costs: Floats) -> bytes:
    return np.column_stack((positions, costs)).tobytes()


class ScanFunction(Protocol):
    """`scan.rank`, or `kernel.rank` where it is compiled."""

    def __call__(
        self, query: MatchQuery, columns: NodeColumns, subset: Positions, tried: Positions, *, k: int
    ) -> ScanResult: ...


# Filters, for one node's numbers or for the columns of many.


def is_eligible(q: Any, x: Any) -> Any:
    """No filter rejects the node. What does not depend on the job is in HEARD_IF_OPEN_S already."""
    return (
        (x[ColumnField.HEARD_IF_OPEN_S] > q.offline_before_s)
        & (x[ColumnField.CONTEXT_TOKENS] > q.prompt_tokens_floor)
        & (x[ColumnField.FITS_TOKENS] >= q.prompt_tokens + q.output_tokens)
        & (x[ColumnField.STANDING] >= q.standing)
    )


def is_offline(q: Any, x: Any) -> Any:
    return (x[ColumnField.CONNECTED] == 0.0) | (x[ColumnField.LAST_HEARD_S] <= q.offline_before_s)


def is_draining(q: Any, x: Any) -> Any:  # noqa: ARG001 (one signature for all filters)
    return x[ColumnField.DRAINING] != 0.0


def is_context_too_short(q: Any, x: Any) -> Any:
    return x[ColumnField.CONTEXT_TOKENS] <= q.prompt_tokens_floor


def is_vram_too_small(q: Any, x: Any) -> Any:
    return x[ColumnField.FITS_TOKENS] < q.prompt_tokens + q.output_tokens


def is_unmeasured(q: Any, x: Any) -> Any:  # noqa: ARG001
    return x[ColumnField.MEASURED] == 0.0


def is_full(q: Any, x: Any) -> Any:
    """Of nodes that no filter rejects."""
    return x[ColumnField.HEARD_IF_OPEN_S] <= q.offline_before_s


def is_suspended(q: Any, x: Any) -> Any:
    """Of nodes that no filter rejects, where the job is no check."""
    return (x[ColumnField.STANDING] < 0.0) & (q.standing >= 0.0)


FILTERS = {
    Rejection.OFFLINE: is_offline,
    Rejection.DRAINING: is_draining,
    Rejection.PROMPT_TOO_LONG: is_context_too_short,
    Rejection.TOO_LITTLE_VRAM: is_vram_too_small,
    Rejection.NOT_MEASURED: is_unmeasured,
}
"""In the order of SCAN_REJECTIONS. A node that passes them all and is not eligible is full, suspended, or not timed."""
FULL, TRIED = SCAN_REJECTIONS.index(Rejection.FULL), SCAN_REJECTIONS.index(Rejection.ALREADY_TRIED)
NOT_TIMED = SCAN_REJECTIONS.index(Rejection.NOT_TIMED)
SUSPENDED = SCAN_REJECTIONS.index(Rejection.SUSPENDED)


def first_rejections(query: MatchQuery, x: Any) -> NDArray[np.int64]:
    """For nodes that are not eligible: the index of the first reason in SCAN_REJECTIONS."""
    found: NDArray[np.int64] = np.select(
        [*(rejects(query, x) for rejects in FILTERS.values()), is_full(query, x), is_suspended(query, x)],
        [*range(len(FILTERS)), FULL, SUSPENDED],
        default=NOT_TIMED,
    )
    return found


def passes_filters(job: MatchJob, x: Floats, *, now_s: float, rules: HealthRules) -> Bools:
    """Which nodes no filter rejects: they can have the job now or, if they are full, later."""
    offline_before_s = now_s - rules.offline_after_s
    query = MatchQuery(job.prompt_tokens, job.output_tokens, job.prompt_tokens_floor, offline_before_s=offline_before_s)
    passed: Bools = ~np.logical_or.reduce([rejects(query, x) for rejects in FILTERS.values()])
    return passed


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


# Ranking.


def rank(
    query: MatchQuery,
    columns: NodeColumns,
    subset: Positions,
    tried: Positions,
    *,
    k: int,
    score: Score | None = None,
) -> ScanResult:
    """The best k of the subset, or of all nodes if it is empty. A ranking with a `score` goes by that."""
    is_able: Bools = _apply(columns, subset, partial(is_eligible, query))
    counts, rejections = _reject(query, columns, subset, is_able, tried)
    if score is None and is_able.size > 2 * PRICED_FIRST:
        bound = _apply(columns, subset, partial(formula.lower_bound, query))
        if any(counts):
            bound[~is_able] = np.inf
        best, costs = best_by_bound(query, columns, subset, bound, k=k)
    else:
        positions = _pick(subset, np.flatnonzero(is_able))
        if score is None:
            best, costs = best_by_cost(query, columns, positions, k=k)
        else:
            best, costs = best_by_score(score, query, columns, positions, k=k)
    rows = pack_ranked(best, costs)
    if not any(counts):
        return ScanResult(rows, best.size)
    return ScanResult(rows, best.size, tuple(counts), pack_rejected(columns, rejections, subset))


def _pick(subset: Positions, chosen: NDArray[np.intp]) -> Positions:
    """Positions, given their indices in the subset; an empty subset stands for all nodes."""
    return subset[chosen] if subset.size else chosen


def _apply(columns: NodeColumns, subset: Positions, function: Callable[[Floats], NDArray[Any]]) -> NDArray[Any]:
    """The function of the subset's columns, or of all; block by block where there are very many."""
    n = len(columns)
    if subset.size and (subset.size <= 2 * PRICED_FIRST or n <= SCAN_MAX):
        return function(columns.by_node[subset].T)
    if n <= SCAN_MAX:
        return function(columns.by_field)
    whole = np.concatenate([function(columns.by_node[at : min(n, at + BLOCK)].T) for at in range(0, n, BLOCK)])
    return whole[subset] if subset.size else whole


def _reject(
    query: MatchQuery, columns: NodeColumns, subset: Positions, is_able: Bools, tried: Positions
) -> tuple[list[int], NDArray[np.int8]]:
    """Why each node was rejected (-1: it was not), and the counts. Clears `is_able` for nodes that were tried."""
    rejections = np.full(is_able.size, -1, np.int8)
    counts = [0] * len(SCAN_REJECTIONS)
    if not is_able.all():
        unable = np.flatnonzero(~is_able)
        found = first_rejections(query, columns.by_node[_pick(subset, unable)].T)
        rejections[unable] = found
        counts = np.bincount(found, minlength=len(SCAN_REJECTIONS)).tolist()
    if tried.size:
        again = np.flatnonzero(is_able & np.isin(subset if subset.size else np.arange(is_able.size), tried))
        rejections[again], is_able[again], counts[TRIED] = TRIED, False, again.size
    return counts, rejections


def pack_rejected(columns: NodeColumns, rejections: NDArray[np.int8], subset: Positions) -> bytes:
    """Some rejected nodes as a decision keeps them: those with the lowest hashes, whatever the table's order."""
    rejected = np.flatnonzero(rejections >= 0)
    positions = _pick(subset, rejected)
    hashes = columns.hashes[positions]
    lowest = np.arange(positions.size)
    if positions.size > REJECTIONS_KEPT:
        lowest = np.argpartition(hashes, REJECTIONS_KEPT)[:REJECTIONS_KEPT]
    lowest = lowest[np.argsort(hashes[lowest])]
    positions, reasons = positions[lowest], rejections[rejected[lowest]]
    numbers = columns.by_node[positions[:, None], np.array(REJECTED_FIELDS)]
    return np.column_stack((positions, reasons, numbers)).tobytes()


def best_by_bound(
    query: MatchQuery, columns: NodeColumns, subset: Positions, bound: Floats, *, k: int
) -> tuple[Positions, Floats]:
    """The best k, given a lower bound of each cost (infinity: not eligible)."""
    sample = np.sort(bound[::SAMPLED_SHARE])
    guess = min(float(sample[min(sample.size - 1, (k + PRICED_FIRST) // SAMPLED_SHARE)]), formula.COST_MAX)
    best, costs = best_by_cost(query, columns, _pick(subset, np.flatnonzero(bound <= guess)), k=k)
    limit = float(formula.to_us(costs[-1, 0]) + 1.0) * 1e-6 if len(costs) == k else formula.COST_MAX
    if limit <= guess:
        return best, costs
    return best_by_cost(query, columns, _pick(subset, np.flatnonzero(bound <= limit)), k=k)


def best_by_cost(query: MatchQuery, columns: NodeColumns, positions: Positions, *, k: int) -> tuple[Positions, Floats]:
    """The best k by the whole formula."""
    x = np.ascontiguousarray(columns.by_node[positions].T)
    parts = formula.parts(query, x)
    base = formula.total(query, parts)
    jitter = base * query.jitter * hash_fraction(columns.hashes[positions], query.jitter_seed)
    order = lowest_costs(base + jitter, columns, positions, k=k)
    chosen = np.array(parts)[:, order]
    summary = formula.summary(query, chosen, jitter[order], x[:, order])
    weighted = chosen * np.array(query.weights)[:, None]
    return positions[order], np.vstack((*summary, weighted, jitter[order])).T


def lowest_costs(cost: Floats, columns: NodeColumns, positions: Positions, *, k: int) -> Positions:
    """Indices of the k lowest, in order: to the microsecond, then by node id, all 160 bits of it."""
    rounded = formula.to_us(cost)
    among = np.arange(rounded.size)
    if rounded.size > k:
        among = np.flatnonzero(rounded <= np.partition(rounded, k - 1)[k - 1])
    high, middle, low = columns.ids[positions[among]].T
    order: Positions = among[np.lexsort((low, middle, high, rounded[among]))[:k]]
    return order


def best_by_score(
    score: Score, query: MatchQuery, columns: NodeColumns, positions: Positions, *, k: int
) -> tuple[Positions, Floats]:
    """The k with the highest score, and its parts; the predictions beside it are the formula's."""
    x = columns.by_node[positions].T
    parts = np.array(score(x))
    cost = -sum(parts[1:], parts[0])
    order = lowest_costs(cost, columns, positions, k=k)
    none = np.zeros(order.size)
    _, *summary = formula.summary(query, formula.parts(query, x[:, order]), none, x[:, order])
    return positions[order], np.vstack((cost[order], *summary, parts[:, order], none)).T
