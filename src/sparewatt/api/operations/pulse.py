"""GET /v1/pulse: what this gateway does right now, for its operators. `sparewatt top` shows it.

Counts only grow, so that a client computes rates from two replies and the gateway stores none. The public port has no
`/metrics`; the pulse is the part of it that an operator can read remotely, with an operator's key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappush, heapreplace
from operator import itemgetter
from typing import NamedTuple

from aiohttp import web
from msgspec import structs

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.cluster.questions import Counts, NodeCounts
from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.protocol.api.feed import NodeStateName
from sparewatt.protocol.api.operations import Pulse, PulseModel, PulseNode, PulseTotals
from sparewatt.protocol.link.node_report import Sensors
from sparewatt.telemetry.feed.public import vram_gb_of
from sparewatt.telemetry.job_counter import TIMES_S
from sparewatt.telemetry.metrics.node_metrics import in_batches
from sparewatt.telemetry.pulse_counts import NO_COUNTS, PulseCounts

TROUBLED_MAX = PULSE_NODES_MAX // 4
BUSIEST_MAX = PULSE_NODES_MAX - TROUBLED_MAX
GONE_S = 3600.0
"""A node that has been offline for longer is not shown as troubled."""
_HEALTHY = (NodeState.ONLINE, NodeState.BUSY)
_Ranked = tuple[int, int, int, NodeRow, NodeState]
"""Sort keys first. The third is unique to a row, so that rows themselves are never compared."""
_NO_WORK = NodeCounts(tokens=0, done=0, failed=0)


@dataclass(slots=True, kw_only=True)
class PulseEndpoints:
    rows: Iterable[NodeRow]
    """All nodes, whenever it is iterated."""
    state_of: Callable[[NodeRow], NodeState]
    sensors_of: Callable[[NodeId], Sensors | None]
    """The latest readings of a node."""
    counts: PulseCounts
    clock: Clock
    started_unix_s: float
    """When this gateway started."""

    @endpoint("GET /v1/pulse", access="operator")
    async def show_pulse(self, _: web.Request, __: Principal) -> Pulse:
        """Show what this gateway does right now, in counts. Operators only."""
        return await self.current_pulse()

    async def current_pulse(self) -> Pulse:
        survey = PulseSurvey(self.state_of, unix_s=self.clock.unix_s())
        await in_batches(list(self.rows), survey.add)
        counts = await self.counts.count_all(survey.node_ids)
        return Pulse(
            at=self.clock.unix_s(),
            started_at=self.started_unix_s,
            instance=counts.instance,
            totals=PulseTotals(nodes=survey.states, gpus=survey.gpus, vram_gb=survey.vram_gb),
            running=counts.running,
            waiting=counts.waiting,
            tokens_written=counts.tokens_written,
            errors=counts.errors,
            first_token_bounds_s=list(TIMES_S),
            models=_models_of(survey.models, counts),
            busiest=self._nodes_of(survey.busiest, counts),
            troubled=self._nodes_of(survey.troubled, counts),
        )

    def _nodes_of(self, nodes: list[_Ranked], counts: Counts) -> list[PulseNode]:
        return [
            _node_of(row, state, counts.nodes.get(row.id, _NO_WORK), self.sensors_of(row.id) or Sensors())
            for *_, row, state in sorted(nodes, key=itemgetter(0, 1, 2), reverse=True)
        ]


def _models_of(served: Mapping[str, ModelNodes], counts: Counts) -> list[PulseModel]:
    """Models that were requested, then a bounded number of those that are served, the busiest first."""
    by_load = sorted(served, key=lambda model: (-counts.models.get(model, NO_COUNTS).running, model))
    models = dict.fromkeys([*counts.models, *by_load[:METRICS_MODELS_MAX]])
    return [_model_of(model, served.get(model, ModelNodes()), counts) for model in models]


def _model_of(model: str, on_nodes: ModelNodes, counts: Counts) -> PulseModel:
    work = structs.asdict(counts.models.get(model, NO_COUNTS))
    return PulseModel(id=model, nodes=on_nodes.nodes, warm=on_nodes.warm, **work)


def _node_of(row: NodeRow, state: NodeState, work: NodeCounts, sensors: Sensors) -> PulseNode:
    used = [gpu.utilisation for gpu in sensors.gpus if gpu.utilisation is not None]
    return PulseNode(
        id=row.id,
        name=row.specs.name,
        region=row.specs.region,
        gpu=row.specs.gpu,
        state=state.value,
        paused=row.load.paused,
        running=row.jobs_now,
        queued=row.load.queued,
        slots=row.specs.slots,
        tokens=work.tokens,
        jobs_done=work.done,
        jobs_failed=work.failed,
        rtt_ms=round(row.rtt_s * 1000, 3),
        power_watts=sensors.power_watts,
        temperature_c=max((gpu.temperature_c for gpu in sensors.gpus if gpu.temperature_c is not None), default=None),
        utilisation=sum(used) / len(used) if used else None,
    )


# one pass over all nodes


class ModelNodes(NamedTuple):
    """Nodes that have a model and are not offline, and those of them that have it loaded."""

    nodes: int = 0
    warm: int = 0


class PulseSurvey:
    """Counts, and a bounded number of the busiest and the most troubled nodes."""

    def __init__(self, state_of: Callable[[NodeRow], NodeState], *, unix_s: float) -> None:
        self._state_of = state_of
        self._unix_s = unix_s
        self.states: Counter[NodeStateName] = Counter()
        self.gpus = self.vram_gb = 0
        self.models: dict[str, ModelNodes] = {}
        self.busiest: list[_Ranked] = []
        """A heap: the nodes with the most running jobs."""
        self.troubled: list[_Ranked] = []
        """A heap: the nodes with the most failed jobs."""

    def add(self, row: NodeRow) -> None:
        state = self._state_of(row)
        self.states[state.value] += 1
        if state in _HEALTHY:
            _push(self.busiest, (row.jobs_now, row.jobs_done, -row.index, row, state), BUSIEST_MAX)
        elif state is not NodeState.OFFLINE or self._unix_s - (row.last_seen_unix_s or 0.0) < GONE_S:
            _push(self.troubled, (row.jobs_failed, row.jobs_done, -row.index, row, state), TROUBLED_MAX)
        if state is not NodeState.OFFLINE:
            self._add_capacity(row)

    @property
    def node_ids(self) -> list[NodeId]:
        """Of the busiest and the troubled nodes."""
        return [row.id for *_, row, _ in (*self.busiest, *self.troubled)]

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
