"""Baseline schedulers on the same node tables, reports and in-flight counts as the shipped matcher. Warm nodes only.

`neuralgrid` itself is a shipped ranking and not here. Baselines predict no times, so nodes never refuse their jobs.
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
from sparewatt.sim.fleet.physics import Floats
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.world import World

BUSY_JOBS = 1
"""A node with this many jobs is `busy` in NeuralGrid's terms."""

Cost = Callable[[MatchJob, Floats, Floats], Floats]


def least_loaded(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one signature for all)
    cost: Floats = data[ColumnField.JOBS] + chance
    return cost


def power_of_two(job: MatchJob, data: Floats, chance: Floats) -> Floats:  # noqa: ARG001 (one signature for all)
    """The less loaded of two nodes drawn at random (power of two choices)."""
    drawn = np.argsort(chance)[:2]
    cost: Floats = np.full(chance.size, np.inf)
    cost[drawn] = data[ColumnField.JOBS][drawn] + chance[drawn]
    return cost


def kind_neuralgrid(job: MatchJob, data: Floats, chance: Floats) -> Floats:
    """NeuralGrid's score over the nodes that are not busy; if all are, the least loaded."""
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
        indices = _eligible_indices(job, table, entries, at) if entries is not None else None
        if entries is None or indices is None or not indices.size:
            return None
        data = entries.by_field[:, indices]
        chance = hash_fractions(self._seed, hash_text(job.id), entries.hashes[indices])
        best = int(indices[int(np.argmin(self._cost(job, data, chance)))])
        return entries.nodes[best], None


def _eligible_indices(job: MatchJob, table: NodeTable, entries: NodeColumns, at: MatchContext) -> NDArray[np.intp]:
    """Live nodes with the model warm; if there is none, those that load it; if there is none, any.

    So a cold model is loaded once, and gets no second node when its only one is full or has failed a job: baselines
    never add a replica. All jobs wait at that node.
    """
    data = entries.by_field
    live = passes_filters(job, data, now_s=at.now_s, rules=at.rules)
    warm = live & (data[ColumnField.WARM] != 0)
    if warm.any():
        return _untried(np.flatnonzero(warm), entries, at)
    indices = _untried(np.flatnonzero(live), entries, at)
    loading = [index for index in indices.tolist() if _is_loading(job, table.get(entries.nodes[index]))]
    return np.array(loading, np.intp) if loading else indices


def _untried(indices: NDArray[np.intp], entries: NodeColumns, at: MatchContext) -> NDArray[np.intp]:
    """Those that have not failed the job yet, or all if there is no other."""
    left = [index for index in indices.tolist() if entries.nodes[index] not in at.tried]
    return np.array(left, np.intp) if left else indices


def _is_loading(job: MatchJob, row: NodeRow | None) -> bool:
    """Whether the node loads the model, or will for a job that was sent to it."""
    return row is not None and (job.model in row.own_active or row.models[job.model].state == "loading")
