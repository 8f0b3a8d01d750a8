"""GET /v1/pulse: what this gateway does right now, for its operators. `sparewatt top` shows it.

Counts only grow, so that a client computes rates from two replies and the gateway stores none. The public port has no
`/metrics`; the pulse is the part of it that an operator watches from afar, with an operator's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.api.operations.pulse_survey import ModelNodes, PulseSurvey
from sparewatt.cluster.questions import Counts, NodeCounts
from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.api.operations import Pulse, PulseModel, PulseNode, PulseTotals
from sparewatt.protocol.link.node_report import Sensors
from sparewatt.telemetry.job_counter import TIMES_S
from sparewatt.telemetry.metrics.node_metrics import in_batches
from sparewatt.telemetry.pulse_counts import NO_COUNTS, PulseCounts

_NO_WORK = NodeCounts(tokens=0, done=0, failed=0)


class SensorReadings(Protocol):
    def latest(self, node_id: NodeId) -> Sensors | None: ...


class PulseEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        rows: Iterable[NodeRow],
        states: NodeStates,
        power: SensorReadings,
        counts: PulseCounts,
        clock: Clock,
        started_unix_s: float,
    ) -> None:
        """`rows`: all nodes, whenever it is iterated. `started_unix_s`: when this gateway started."""
        self._auth = auth
        self._rows = rows
        self._states = states
        self._power = power
        self._counts = counts
        self._clock = clock
        self._started_unix_s = started_unix_s

    @get("/v1/pulse")
    async def show_pulse(self, request: web.Request) -> Pulse:
        """Show what this gateway does right now, in counts. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        return await self.current_pulse()

    async def current_pulse(self) -> Pulse:
        survey = PulseSurvey(self._states.of, unix_s=self._clock.unix_s())
        await in_batches(list(self._rows), survey.add)
        counts = await self._counts.count_all(survey.node_ids)
        return Pulse(
            at=self._clock.unix_s(),
            started_at=self._started_unix_s,
            instance=counts.instance,
            totals=PulseTotals(nodes=survey.states, gpus=survey.gpus, vram_gb=survey.vram_gb),
            running=counts.running,
            waiting=counts.waiting,
            tokens_written=counts.tokens_written,
            errors=counts.errors,
            first_token_bounds_s=list(TIMES_S),
            models=_models_of(survey.models, counts),
            busiest=self._nodes_of(survey.busiest(), counts),
            troubled=self._nodes_of(survey.troubled(), counts),
        )

    def _nodes_of(self, nodes: Iterable[tuple[NodeRow, NodeState]], counts: Counts) -> list[PulseNode]:
        return [
            _node_of(row, state, counts.nodes.get(row.id, _NO_WORK), self._power.latest(row.id) or Sensors())
            for row, state in nodes
        ]


def _models_of(served: Mapping[str, ModelNodes], counts: Counts) -> list[PulseModel]:
    """Models that were requested, then a bounded number of those that are served, the busiest first."""
    by_load = sorted(served, key=lambda model: (-counts.models.get(model, NO_COUNTS).running, model))
    models = dict.fromkeys([*counts.models, *by_load[:METRICS_MODELS_MAX]])
    return [_model_of(model, served.get(model, ModelNodes()), counts) for model in models]


def _model_of(model: str, on_nodes: ModelNodes, counts: Counts) -> PulseModel:
    work = counts.models.get(model, NO_COUNTS)
    return PulseModel(
        id=model,
        nodes=on_nodes.nodes,
        warm=on_nodes.warm,
        running=work.running,
        waiting=work.waiting,
        requests=work.requests,
        prompt_tokens=work.prompt_tokens,
        completion_tokens=work.completion_tokens,
        first_token_counts=work.first_token_counts,
    )


def _node_of(row: NodeRow, state: NodeState, work: NodeCounts, sensors: Sensors) -> PulseNode:
    used = [gpu.utilisation for gpu in sensors.gpus if gpu.utilisation is not None]
    return PulseNode(
        id=row.id,
        name=row.specs.name,
        region=row.specs.region,
        gpu=row.specs.gpu,
        state=state.value,
        paused=row.load.paused,
        running=row.jobs_there,
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
