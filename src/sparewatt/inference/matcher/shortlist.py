"""For models with very many nodes: the best few, sorted anew four times a second, and some drawn by chance.

A decision then looks at about ninety nodes instead of a hundred thousand. The draw keeps nodes in play that the last
sorting could not know about: new ones, and those that have just become free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.entries import Entries, Field
from sparewatt.inference.matcher.formula import JobNumbers
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.scan import balanced_parts, eligible
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable

REFRESH_S = 0.25
WARM_KEPT, COLD_KEPT, DRAWN = 64, 8, 16
USD_WEIGHT = 1e4
_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Shortlist:
    """The best places of one model, as of `made_at_s`."""

    places: NDArray[np.int64]
    made_at_s: float
    n_places: int


def shortlisted(job: MatchJob, table: NodeTable, entries: Entries, at: Situation, match_hash: int) -> NDArray[np.int64]:
    """Places worth looking at for this job."""
    kept = table.shortlists.get(job.model)
    if kept is None or at.now_s - kept.made_at_s >= REFRESH_S or kept.n_places > len(entries):
        kept = table.shortlists[job.model] = sort_out(job, table, entries, at)
    drawn = [((match_hash + i * _ODD) & _MASK) % len(entries) for i in range(DRAWN)]
    return np.unique(np.concatenate((kept.places, np.array(drawn, np.int64))))


def sort_out(job: MatchJob, table: NodeTable, entries: Entries, at: Situation) -> Shortlist:
    """Sort all nodes of the model for a job like this one."""
    typical = JobNumbers(
        float(job.prompt_tokens), float(table.typical_output_tokens(job.model)), table.strain_of(job.model), USD_WEIGHT
    )
    warm = entries.data[Field.WARM] != 0
    places = np.concatenate(
        [
            _best(job, typical, entries, np.flatnonzero(chosen), at, k=k)
            for chosen, k in ((warm, WARM_KEPT), (~warm, COLD_KEPT))
        ]
    )
    return Shortlist(places, at.now_s, len(entries))


def _best(
    job: MatchJob, typical: JobNumbers, entries: Entries, among: NDArray[np.intp], at: Situation, *, k: int
) -> NDArray[np.int64]:
    if not among.size:
        return np.empty(0, np.int64)
    if kernel.ready():
        found, _, _ = kernel.best_places(
            entries,
            among.astype(np.int64),
            typical,
            floor=float(job.prompt_tokens_floor),
            now_s=at.now_s,
            away_s=at.rules.offline_after_s,
            suspect_after_s=at.rules.suspect_after_s,
            jitter=0.0,
            start=0,
            k=k,
        )
        return found
    data = entries.data[:, among]
    able = eligible(job, data, now_s=at.now_s, rules=at.rules).able
    parts = balanced_parts(typical, data, now_s=at.now_s, rules=at.rules)
    cost = np.where(able, sum(parts[1:], parts[0]), np.inf)
    n = min(k, int(np.count_nonzero(able)))
    chosen: NDArray[np.int64] = among[np.argpartition(cost, n - 1)[:n]].astype(np.int64) if n else np.empty(0, np.int64)
    return chosen
