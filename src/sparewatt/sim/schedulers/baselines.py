"""Policies to compare with, on the same tables, reports and in-flight counts as the shipped matcher. Warm nodes only.

`neuralgrid` itself is a shipped policy and needs nothing here. None of these predicts, so nodes refuse them nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns
from sparewatt.inference.matcher.formula import NEURALGRID, hash_fractions, hash_text
from sparewatt.inference.matcher.model import Candidate, MatchContext, MatchJob
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.scan import neuralgrid_parts, passes_filters
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.sim.price_table import Floats
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.world import World

BUSY_JOBS = 1
"""From here on a node counts as busy for `neuralgrid-kind`: NeuralGrid's own word for a node that has a job."""

Cost = Callable[[MatchJob, Floats, Floats], Floats]


def least_loaded(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one shape for all)
    cost: Floats = data[ColumnField.JOBS] + chance
    return cost


def power_of_two(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one shape for all)
    """The less loaded of two drawn by lot."""
    drawn = np.argsort(chance)[:2]
    cost: Floats = np.full(chance.size, np.inf)
    cost[drawn] = data[ColumnField.JOBS][drawn] + chance[drawn]
    return cost


def kind_neuralgrid(job: MatchJob, data: Floats, chance: Floats) -> Floats:
    """NeuralGrid's score over the nodes that are not busy; when all are, the least busy one."""
    busy = data[ColumnField.JOBS] >= BUSY_JOBS
    if busy.all():
        return least_loaded(job, data, chance)
    vram, compute, cost = neuralgrid_parts(job, data)
    return np.where(busy, np.inf, -(vram + compute + cost))


COSTS: dict[str, Cost] = {
    "neuralgrid-kind": kind_neuralgrid,
    "least-loaded": least_loaded,
    "p2c": power_of_two,
}


class Baseline(SimGateways):
    def __init__(self, world: World, name: str, *, heartbeat_s: float, seed: int) -> None:
        super().__init__(world, NEURALGRID, heartbeat_s=heartbeat_s, seed=seed)
        self._cost = COSTS[name]

    def _pick(self, job: MatchJob, table: NodeTable, at: MatchContext) -> tuple[NodeId, Candidate | None] | None:
        entries = table.columns_of(job.model)
        places = _eligible_places(job, table, entries, at) if entries is not None else None
        if entries is None or places is None or not places.size:
            return None
        data = entries.by_field[:, places]
        chance = hash_fractions(self._seed, hash_text(job.id), entries.hashes[places])
        best = int(places[int(np.argmin(self._cost(job, data, chance)))])
        return entries.nodes[best], None


def _eligible_places(job: MatchJob, table: NodeTable, entries: NodeColumns, at: MatchContext) -> NDArray[np.intp]:
    """Places that are there and hold the model; if none does, those that are getting it; if none is, any.

    So a model that is nowhere is loaded once, and it gets no second node because its only one is full or has failed a
    job: never adding a replica is what makes these policies what they are. Jobs wait at that node, however many.
    """
    data = entries.by_field
    there = passes_filters(job, data, now_s=at.now_s, rules=at.rules)
    warm = there & (data[ColumnField.WARM] != 0)
    if warm.any():
        return _untried(np.flatnonzero(warm), entries, at)
    places = _untried(np.flatnonzero(there), entries, at)
    coming = [place for place in places.tolist() if _is_coming(job, table.get(entries.nodes[place]))]
    return np.array(coming, np.intp) if coming else places


def _untried(places: NDArray[np.intp], entries: NodeColumns, at: MatchContext) -> NDArray[np.intp]:
    """Those that have not failed the job yet, or all if there is no other."""
    left = [place for place in places.tolist() if entries.nodes[place] not in at.tried]
    return np.array(left, np.intp) if left else places


def _is_coming(job: MatchJob, row: NodeRow | None) -> bool:
    """Whether the node loads the model, or will because of a job that we have sent it."""
    return row is not None and (job.model in row.own_active or row.models[job.model].state == "loading")
