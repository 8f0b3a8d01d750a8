"""For models with very many nodes: the best few hundred, sorted four times a second, plus a random sample.

A match then looks at about ninety nodes instead of a hundred thousand. The sample keeps nodes in play that the last
sort could not know about: new ones, and those that have just become free. A node that is good for a short prompt or a
low price is not good for all, so there is a shortlist for each class of job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparewatt.inference.matcher import kernel, scan
from sparewatt.inference.matcher.columns import NO_POSITIONS, ColumnField, NodeColumns, Positions
from sparewatt.inference.matcher.formula import BALANCED, ECONOMY, FAST, PARTS, UNIT_WEIGHTS, hash_fraction
from sparewatt.inference.matcher.scan import MatchQuery

REFRESH_S = 0.25
NODES_PER_REFRESH = 100_000
"""Sorting more nodes takes longer, so it is done less often: a class of jobs costs about a fiftieth of one core."""
USES_MAX = 256
"""Matches after which a list is stale however young: the jobs that it placed have changed what it was sorted by."""
TOP, ROTATING, COLD, SAMPLED = 24, 40, 8, 16
"""What one match looks at: the very best; some of the next, moving one further down with each match, because those
before have been given jobs meanwhile; the best of those that would have to load the model; and a random sample."""
WARM_KEPT = TOP + ROTATING + USES_MAX
_PRICE = PARTS.index("price")
_FAST_USD, _BALANCED_USD, _ECONOMY_USD = (ranking.usd_weight or 0.0 for ranking in (FAST, BALANCED, ECONOMY))

JobClass = tuple[int, float, float]
"""Jobs that share a shortlist: within a factor of four in prompt length, nearest to the same tier's usd_weight, and for
nodes of the same standing."""


@dataclass(slots=True)
class Shortlist:
    """The best nodes of one model for one class of jobs."""

    candidates: Positions
    """One row of positions per match."""
    n_nodes: int
    stale_at_s: float
    uses: int = 0

    def is_stale(self, now_s: float, n_nodes: int) -> bool:
        return now_s >= self.stale_at_s or self.uses >= USES_MAX or n_nodes < self.n_nodes


Shortlists = dict[JobClass, Shortlist]


def shortlisted(query: MatchQuery, columns: NodeColumns, shortlists: Shortlists, *, compiled: bool) -> Positions:
    """The positions to look at for this job. Sorts again if the list is stale."""
    key = job_class(query)
    shortlist = shortlists.get(key)
    if shortlist is None or shortlist.is_stale(query.now_s, len(columns)):
        shortlist = shortlists[key] = build_shortlist(query, columns, compiled=compiled)
    candidates: Positions = shortlist.candidates[shortlist.uses]
    shortlist.uses += 1
    return candidates


def job_class(query: MatchQuery) -> JobClass:
    usd_weight = query.usd_weight * query.weights[_PRICE]
    nearest = _BALANCED_USD
    if usd_weight < _BALANCED_USD / 2:
        nearest = _FAST_USD
    elif usd_weight > _ECONOMY_USD / 2:
        nearest = _ECONOMY_USD
    return int(query.prompt_tokens).bit_length() // 2, nearest, query.standing


def build_shortlist(query: MatchQuery, columns: NodeColumns, *, compiled: bool) -> Shortlist:
    """Sort all nodes of the model for a job like this one, without jitter."""
    _, usd_weight, _ = job_class(query)
    typical = query._replace(usd_weight=usd_weight, weights=UNIT_WEIGHTS, jitter=0.0)
    rank = kernel.rank if compiled else scan.rank
    n = len(columns)
    is_warm = columns.by_node[:n, ColumnField.WARM] != 0
    best, cold = (
        rank(typical, columns, subset, NO_POSITIONS, k=k).positions if subset.size else NO_POSITIONS
        for subset, k in ((np.flatnonzero(is_warm), WARM_KEPT), (np.flatnonzero(~is_warm), COLD))
    )
    stale_at_s = query.now_s + REFRESH_S * max(1.0, n / NODES_PER_REFRESH)
    return Shortlist(_candidates(query, best, cold, n), n, stale_at_s)


def _candidates(query: MatchQuery, best: Positions, cold: Positions, n_nodes: int) -> Positions:
    """One row per match; no position twice in a row."""
    top, rotating = best[:TOP], best[TOP:]
    if rotating.size > ROTATING:
        rotating = rotating[(np.arange(USES_MAX)[:, None] + np.arange(ROTATING)) % rotating.size]
    sample = _samples(query, np.concatenate((best, cold)), n_nodes)
    return np.hstack([np.broadcast_to(part, (USES_MAX, part.shape[-1])) for part in (top, rotating, cold, sample)])


def _samples(query: MatchQuery, best: Positions, n_nodes: int) -> Positions:
    """Some of the other nodes, at random."""
    wanted = USES_MAX * SAMPLED
    chance = hash_fraction(np.arange(2 * wanted, dtype=np.uint64), query.jitter_seed)
    others = np.setdiff1d((chance * n_nodes).astype(np.int64), best)
    shuffled: Positions = others[np.argsort(hash_fraction(others.astype(np.uint64), query.jitter_seed))]
    return np.resize(shuffled, (USES_MAX, SAMPLED))
