"""Metric families about nodes: all together, and one by one if the operator sets `metrics_by_node`.

Each survey is one pass over the table of nodes, in batches, so that very many nodes do not block a request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow, NodeState, state_of
from sparewatt.protocol.link.node_report import ServerMetrics
from sparewatt.telemetry.job_counter import OTHER
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.prometheus import Family, Labels, Metric, Sample, labelled, one

METRICS_NODES_MAX = 1_000
"""Nodes with metrics of their own: about 25 series each."""
ROWS_PER_TICK = 100
"""About a millisecond."""

_MetricSample = tuple[Metric, Sample]


async def in_batches(rows: Sequence[NodeRow], visit: Callable[[NodeRow], None]) -> None:
    """Visit some rows per tick of the event loop."""
    for at, row in enumerate(rows, start=1):
        visit(row)
        if at % ROWS_PER_TICK == 0:
            await asyncio.sleep(0)


def largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest METRICS_MODELS_MAX counts, and the sum of the rest as `other`."""
    if len(counts) <= METRICS_MODELS_MAX:
        return dict(counts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[METRICS_MODELS_MAX:])
    top = dict(ordered[:METRICS_MODELS_MAX])
    return top | {OTHER: top.get(OTHER, 0) + rest}


class NetworkSurvey:
    """Sums over all nodes."""

    def __init__(self, power: PowerReadings, *, now_s: float, rules: HealthRules) -> None:
        self._power = power
        self._now_s, self._rules = now_s, rules
        self._states = Counter({state.value: 0 for state in NodeState})
        self._gpus = self._vram_bytes = self._slots = 0
        self._watts = 0.0
        self._models: dict[str, Counter[str]] = {}
        """By the model's state."""

    def add(self, row: NodeRow) -> None:
        self._states[state_of(row, now_s=self._now_s, rules=self._rules).value] += 1
        if not row.connected:
            return
        specs, sensors = row.specs, self._power.latest(row.id)
        self._gpus += specs.gpu_count
        self._vram_bytes += specs.vram_bytes
        self._slots += specs.slots
        self._watts += (sensors.power_watts or 0.0) if sensors is not None else 0.0
        for model in specs.models:
            self._models.setdefault(model.state, Counter())[model.id] += 1

    def families(self) -> list[Family]:
        model_nodes = [
            Sample(count, (("model", model), ("state", state)))
            for state, counts in sorted(self._models.items())
            for model, count in sorted(largest(counts).items())
        ]
        return [
            labelled(names.NODES, "state", self._states),
            one(names.GPUS, self._gpus),
            one(names.VRAM, self._vram_bytes),
            one(names.SLOTS, self._slots),
            one(names.POWER, self._watts),
            Family(names.MODEL_NODES, model_nodes),
        ]


def shown_nodes(rows: Sequence[NodeRow]) -> Sequence[NodeRow]:
    """At most METRICS_NODES_MAX, connected ones first."""
    if len(rows) <= METRICS_NODES_MAX:
        return rows
    return sorted(rows, key=lambda row: (not row.connected, row.index))[:METRICS_NODES_MAX]


@dataclass(slots=True, kw_only=True)
class NodeSurvey:
    """Samples are made by node, and exposed by family, as the format requires."""

    power: PowerReadings
    servers: Mapping[NodeId, ServerMetrics]
    tokens: Mapping[NodeId, int]
    now_s: float
    rules: HealthRules
    _by_metric: dict[Metric, list[Sample]] = field(default_factory=dict)

    def add(self, row: NodeRow) -> None:
        for metric, sample in self._samples(row):
            self._by_metric.setdefault(metric, []).append(sample)

    def families(self) -> list[Family]:
        return [Family(metric, samples) for metric, samples in self._by_metric.items()]

    def _samples(self, row: NodeRow) -> Iterator[_MetricSample]:
        specs, load, node = row.specs, row.load, ("node", row.id)
        is_up = state_of(row, now_s=self.now_s, rules=self.rules) is not NodeState.OFFLINE
        info = (("name", specs.name), ("region", specs.region), ("gpu", specs.gpu), ("backend", specs.backend))
        yield names.NODE_INFO, Sample(1, (node, *info, ("version", specs.agent_version)))
        yield names.NODE_UP, Sample(float(is_up), (node,))
        yield names.NODE_JOBS, Sample(row.jobs_done, (node, ("result", "done")))
        yield names.NODE_JOBS, Sample(row.jobs_failed, (node, ("result", "failed")))
        yield names.NODE_TOKENS, Sample(self.tokens.get(row.id, 0), (node,))
        if not is_up:
            return
        yield names.NODE_RUNNING, Sample(load.running, (node,))
        yield names.NODE_QUEUE, Sample(load.queued, (node,))
        yield names.NODE_FOREIGN, Sample(load.foreign, (node,))
        yield names.NODE_SLOTS, Sample(specs.slots, (node,))
        yield names.NODE_WARM, Sample(sum(model.state == "warm" for model in row.models.values()), (node,))
        yield names.NODE_RTT, Sample(row.rtt_s, (node,))
        yield from self._sensor_samples(row.id, (node,))
        yield from self._server_samples(row, (node,))

    def _sensor_samples(self, node_id: NodeId, labels: Labels) -> Iterator[_MetricSample]:
        sensors = self.power.latest(node_id)
        if sensors is None:
            return
        yield from _known(((names.NODE_POWER, sensors.power_watts),), labels)
        for at, gpu in enumerate(sensors.gpus):
            figures = (
                (names.NODE_GPU_USE, gpu.utilisation),
                (names.NODE_GPU_TEMPERATURE, gpu.temperature_c),
                (names.NODE_GPU_POWER, gpu.power_watts),
                (names.NODE_GPU_FREE, gpu.vram_free_bytes),
            )
            yield from _known(figures, (*labels, ("gpu", str(at))))

    def _server_samples(self, row: NodeRow, labels: Labels) -> Iterator[_MetricSample]:
        """A server counts for all its models together; if it has one, the label names it."""
        models, server = [model.id for model in row.models.values()], self.servers.get(row.id)
        labels = (*labels, ("model", models[0] if len(models) == 1 else ""))
        yield from _known(((names.SERVER_KV, row.load.kv_used),), labels)
        if server is None:
            return
        figures = (
            (names.SERVER_RUNNING, server.running),
            (names.SERVER_WAITING, server.waiting),
            (names.SERVER_READ, server.prompt_tokens),
            (names.SERVER_WROTE, server.generation_tokens),
        )
        yield from _known(figures, labels)
        yield from _summary(names.SERVER_FIRST_TOKEN, server.first_token_s, server.first_tokens, labels)
        yield from _summary(names.SERVER_DURATION, server.request_s, server.requests, labels)


def _known(values: Iterable[tuple[Metric, float | None]], labels: Labels) -> Iterator[_MetricSample]:
    """An unknown value has no sample: zero would be wrong."""
    for metric, value in values:
        if value is not None:
            yield metric, Sample(value, labels)


def _summary(metric: Metric, total: float | None, count: float | None, labels: Labels) -> Iterator[_MetricSample]:
    if total is not None and count is not None:
        yield metric, Sample(total, labels, "_sum")
        yield metric, Sample(count, labels, "_count")
