"""For models with very many nodes: the best few, sorted anew four times a second, and some drawn by chance.

A decision then looks at about ninety nodes instead of a hundred thousand. The draw keeps nodes in play that the last
sorting could not know about: new ones, and those that have just become free. What is good for a short prompt or a low
price is not good for all, so there is a list for each kind of job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparewatt.inference.matcher import kernel, scan
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.hashing import mixed
from sparewatt.inference.matcher.match_query import AS_THEY_ARE, NOBODY, MatchQuery, Positions
from sparewatt.inference.matcher.ranking import BALANCED, ECONOMY, FAST

REFRESH_S = 0.25
NODES_PER_REFRESH = 100_000
"""Sorting more nodes takes longer, so it is done less often: a kind of job costs about a fiftieth of one core."""
USES_MAX = 256
"""Decisions after which it is sorted anew however young it is: they have changed what it was sorted by."""
FIRST, NEXT, COLD_KEPT, DRAWN = 24, 40, 8, 16
"""What a decision looks at: the very best; some that come next, each time one further down, because those before have
been given jobs meanwhile; the best of those that would have to load the model; and some of all."""
WARM_KEPT = FIRST + NEXT + USES_MAX
_PRICE = PARTS.index("price")
_FAST_USD, _BALANCED_USD, _ECONOMY_USD = (ranking.usd_weight or 0.0 for ranking in (FAST, BALANCED, ECONOMY))

Kind = tuple[int, float]
"""Jobs that share a shortlist: within a factor of four in prompt length, and near the same tier's worth of a dollar."""


@dataclass(slots=True)
class Shortlist:
    """The best places of one model for one kind of job, as of `made_at_s`."""

    looks: Positions
    """A line of places per decision."""
    made_at_s: float
    n_places: int
    old_at_s: float
    uses: int = 0

    def is_old(self, now_s: float, n_places: int) -> bool:
        return now_s >= self.old_at_s or self.uses >= USES_MAX or n_places < self.n_places


Shortlists = dict[Kind, Shortlist]


def shortlisted(job: MatchQuery, entries: NodeColumns, kept: Shortlists, *, compiled: bool) -> Positions:
    """Places worth looking at for this job. Sorts them if the last sorting is too old."""
    kind = kind_of(job)
    found = kept.get(kind)
    if found is None or found.is_old(job.now_s, len(entries)):
        found = kept[kind] = sort_out(job, entries, compiled=compiled)
    looks: Positions = found.looks[found.uses]
    found.uses += 1
    return looks


def kind_of(job: MatchQuery) -> Kind:
    usd_weight = job.usd_weight * job.weights[_PRICE]
    nearest = _BALANCED_USD
    if usd_weight < _BALANCED_USD / 2:
        nearest = _FAST_USD
    elif usd_weight > _ECONOMY_USD / 2:
        nearest = _ECONOMY_USD
    return int(job.prompt_tokens).bit_length() // 2, nearest


def sort_out(job: MatchQuery, entries: NodeColumns, *, compiled: bool) -> Shortlist:
    """Sort all nodes of the model for a job like this one, without chance."""
    _, usd_weight = kind_of(job)
    like = job._replace(usd_weight=usd_weight, weights=AS_THEY_ARE, jitter=0.0)
    rank = kernel.rank if compiled else scan.rank
    warm = entries.numbers[: len(entries), ColumnField.WARM] != 0
    best, cold = (
        rank(like, entries, named, NOBODY, k=k).places if named.size else NOBODY
        for named, k in ((np.flatnonzero(warm), WARM_KEPT), (np.flatnonzero(~warm), COLD_KEPT))
    )
    n = len(entries)
    old_at_s = job.now_s + REFRESH_S * max(1.0, n / NODES_PER_REFRESH)
    return Shortlist(_looks(job, best, cold, n), job.now_s, n, old_at_s)


def _looks(job: MatchQuery, best: Positions, cold: Positions, n_places: int) -> Positions:
    """A line per decision; no place twice in one."""
    always, moving = best[:FIRST], best[FIRST:]
    if moving.size > NEXT:
        moving = moving[(np.arange(USES_MAX)[:, None] + np.arange(NEXT)) % moving.size]
    drawn = _draws(job, np.concatenate((best, cold)), n_places)
    return np.hstack([np.broadcast_to(part, (USES_MAX, part.shape[-1])) for part in (always, moving, cold, drawn)])


def _draws(job: MatchQuery, best: Positions, n_places: int) -> Positions:
    """Some of all the others, by lot."""
    wanted = USES_MAX * DRAWN
    chance = mixed(np.arange(2 * wanted, dtype=np.uint64), job.start)
    others = np.setdiff1d((chance * n_places).astype(np.int64), best)
    shuffled: Positions = others[np.argsort(mixed(others.astype(np.uint64), job.start))]
    return np.resize(shuffled, (USES_MAX, DRAWN))
