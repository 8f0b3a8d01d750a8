"""One pass over all nodes for the pulse: counts, and a bounded number of the busiest and the most troubled nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappush, heapreplace
from operator import itemgetter
from typing import NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import PULSE_NODES_MAX
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.protocol.api.feed import NodeStateName
from sparewatt.telemetry.feed.public import vram_gb_of

TROUBLED_MAX = PULSE_NODES_MAX // 4
BUSIEST_MAX = PULSE_NODES_MAX - TROUBLED_MAX
GONE_S = 3600.0
"""A node that has been offline for longer is not shown as troubled."""
_HEALTHY = (NodeState.ONLINE, NodeState.BUSY)
_Ranked = tuple[int, int, int, NodeRow, NodeState]
"""Sort keys first. The third is unique to a row, so that rows themselves are never compared."""


class ModelNodes(NamedTuple):
    """Nodes that have a model and are not offline, and those of them that have it loaded."""

    nodes: int = 0
    warm: int = 0


class PulseSurvey:
    def __init__(self, state_of: Callable[[NodeRow], NodeState], *, unix_s: float) -> None:
        self._state_of = state_of
        self._unix_s = unix_s
        self.states: Counter[NodeStateName] = Counter()
        self.gpus = self.vram_gb = 0
        self.models: dict[str, ModelNodes] = {}
        self._busiest: list[_Ranked] = []
        self._troubled: list[_Ranked] = []

    def add(self, row: NodeRow) -> None:
        state = self._state_of(row)
        self.states[state.value] += 1
        if state in _HEALTHY:
            _push(self._busiest, (row.jobs_now, row.jobs_done, -row.index, row, state), BUSIEST_MAX)
        elif state is not NodeState.OFFLINE or self._unix_s - (row.last_seen_unix_s or 0.0) < GONE_S:
            _push(self._troubled, (row.jobs_failed, row.jobs_done, -row.index, row, state), TROUBLED_MAX)
        if state is not NodeState.OFFLINE:
            self._add_capacity(row)

    @property
    def node_ids(self) -> list[NodeId]:
        """Of the busiest and the troubled nodes."""
        return [row.id for *_, row, _ in (*self._busiest, *self._troubled)]

    def busiest(self) -> list[tuple[NodeRow, NodeState]]:
        """With the most running jobs first."""
        return _in_order(self._busiest)

    def troubled(self) -> list[tuple[NodeRow, NodeState]]:
        """With the most failed jobs first."""
        return _in_order(self._troubled)

    def _add_capacity(self, row: NodeRow) -> None:
        self.gpus += row.specs.gpu_count
        self.vram_gb += vram_gb_of(row)
        for model in row.specs.models:
            before = self.models.get(model.id, ModelNodes())
            self.models[model.id] = ModelNodes(before.nodes + 1, before.warm + (model.state == "warm"))


def _push(heap: list[_Ranked], ranked: _Ranked, size_max: int) -> None:
    """Keep the `size_max` largest."""
    if len(heap) < size_max:
        heappush(heap, ranked)
    elif ranked[:3] > heap[0][:3]:
        heapreplace(heap, ranked)


def _in_order(heap: list[_Ranked]) -> list[tuple[NodeRow, NodeState]]:
    return [(row, state) for *_, row, state in sorted(heap, key=itemgetter(0, 1, 2), reverse=True)]
