"""Policies to compare with, on the same tables, reports and in-flight counts as the shipped matcher. Warm nodes only.

`neuralgrid` itself is a shipped policy and needs nothing here. None of these predicts, so nodes refuse them nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.entries import Entries, Field
from sparewatt.inference.matcher.hashing import fractions, hash_text
from sparewatt.inference.matcher.model import Candidate, MatchJob
from sparewatt.inference.matcher.policies import NEURALGRID
from sparewatt.inference.matcher.scan import eligible, neuralgrid_parts
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.sim.gateways import Gateways
from sparewatt.sim.prices import Floats
from sparewatt.sim.world import World

BUSY_JOBS = 8
"""From here on a node counts as busy for `neuralgrid-kind`: the batch by which nodes set their prices."""

Cost = Callable[[MatchJob, Floats, Floats], Floats]


def least_loaded(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one shape for all)
    cost: Floats = data[Field.JOBS] + chance
    return cost


def power_of_two(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one shape for all)
    """The less loaded of two drawn by lot."""
    drawn = np.argsort(chance)[:2]
    cost: Floats = np.full(chance.size, np.inf)
    cost[drawn] = data[Field.JOBS][drawn] + chance[drawn]
    return cost


def kind_neuralgrid(job: MatchJob, data: Floats, chance: Floats) -> Floats:
    """NeuralGrid's score over the nodes that are not busy; when all are, the least busy one."""
    busy = data[Field.JOBS] >= BUSY_JOBS
    if busy.all():
        return least_loaded(job, data, chance)
    vram, compute, cost = neuralgrid_parts(job, data)
    return np.where(busy, np.inf, -(vram + compute + cost))


COSTS: dict[str, Cost] = {
    "neuralgrid-kind": kind_neuralgrid,
    "least-loaded": least_loaded,
    "p2c": power_of_two,
}


class Baseline(Gateways):
    def __init__(self, world: World, name: str, *, heartbeat_s: float, seed: int) -> None:
        super().__init__(world, NEURALGRID, heartbeat_s=heartbeat_s, seed=seed)
        self._cost = COSTS[name]

    def _pick(self, job: MatchJob, table: NodeTable, at: Situation) -> tuple[NodeId, Candidate | None] | None:
        entries = table.entries(job.model)
        places = _able(job, entries, at) if entries is not None else None
        if entries is None or places is None or not places.size:
            return None
        data = entries.data[:, places]
        chance = fractions(self._seed, hash_text(job.id), entries.hashes[places])
        best = int(places[int(np.argmin(self._cost(job, data, chance)))])
        return entries.nodes[best], None


def _able(job: MatchJob, entries: Entries, at: Situation) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Places that pass the filters and hold the model; if none is warm, those that would have to load it."""
    data = entries.data
    able = eligible(job, data, now_s=at.now_s, rules=at.rules).able
    for node in at.tried:
        if node in entries.nodes:
            able[entries.nodes.index(node)] = False
    warm = able & (data[Field.WARM] != 0)
    return np.flatnonzero(warm if warm.any() else able)
