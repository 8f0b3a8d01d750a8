"""Metric families about nodes one by one, with what their model servers report. Only where the operator wants it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_NODES_MAX
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow, NodeState, state_of
from sparewatt.protocol.link.node_report import GpuReading, Sensors, ServerMetrics
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.model import Labels, Metric, Sample, Samples, family


class ShownNode(NamedTuple):
    """One node, and all that is exposed of it."""

    row: NodeRow
    is_up: bool
    tokens: int
    sensors: Sensors | None
    server: ServerMetrics | None


MetricSample = tuple[Metric, Sample]


class NodeSurvey:
    """Samples are found by node, and exposed by family, as the format wants it."""

    def __init__(
        self,
        power: PowerReadings,
        servers: Mapping[NodeId, ServerMetrics],
        tokens: Mapping[NodeId, int],
        *,
        now_s: float,
        rules: HealthRules,
    ) -> None:
        self._power = power
        self._servers = servers
        self._tokens = tokens
        self._now_s, self._rules = now_s, rules
        self._by_metric: dict[Metric, list[Sample]] = {}

    def add(self, row: NodeRow) -> None:
        for metric, sample in samples_of(self._shown(row)):
            self._by_metric.setdefault(metric, []).append(sample)

    def _shown(self, row: NodeRow) -> ShownNode:
        return ShownNode(
            row,
            is_up=state_of(row, now_s=self._now_s, rules=self._rules) is not NodeState.OFFLINE,
            tokens=self._tokens.get(row.id, 0),
            sensors=self._power.latest(row.id),
            server=self._servers.get(row.id),
        )

    def families(self) -> Samples:
        return [family(metric, *samples) for metric, samples in self._by_metric.items()]


def chosen(rows: Sequence[NodeRow]) -> Sequence[NodeRow]:
    """Of very many, those that are there come first."""
    if len(rows) <= METRICS_NODES_MAX:
        return rows
    return sorted(rows, key=lambda row: (not row.connected, row.index))[:METRICS_NODES_MAX]


def samples_of(node: ShownNode) -> Iterator[MetricSample]:
    row, load = node.row, node.row.load
    which: Labels = (("node", row.id),)
    yield names.NODE_INFO, Sample(1, (*which, *_info(row)))
    yield names.NODE_UP, Sample(float(node.is_up), which)
    for done, count in (("done", row.jobs_done), ("failed", row.jobs_failed)):
        yield names.NODE_JOBS, Sample(count, (*which, ("result", done)))
    yield names.NODE_TOKENS, Sample(node.tokens, which)
    if not node.is_up:
        return
    yield names.NODE_RUNNING, Sample(load.running, which)
    yield names.NODE_QUEUE, Sample(load.queued, which)
    yield names.NODE_FOREIGN, Sample(load.foreign, which)
    yield names.NODE_SLOTS, Sample(row.specs.slots, which)
    yield names.NODE_WARM, Sample(sum(model.state == "warm" for model in row.models.values()), which)
    yield names.NODE_RTT, Sample(row.rtt_s, which)
    yield from _sensor_samples(node.sensors, which)
    yield from _server_samples(node, which)


def _info(row: NodeRow) -> Labels:
    specs = row.specs
    return (
        ("name", specs.name),
        ("region", specs.region),
        ("gpu", specs.gpu),
        ("backend", specs.backend),
        ("version", specs.agent_version),
    )


def _sensor_samples(sensors: Sensors | None, which: Labels) -> Iterator[MetricSample]:
    if sensors is None:
        return
    yield from _known(((names.NODE_POWER, sensors.power_watts),), which)
    for at, gpu in enumerate(sensors.gpus):
        yield from _known(_of_gpu(gpu), (*which, ("gpu", str(at))))


def _of_gpu(gpu: GpuReading) -> Iterable[tuple[Metric, float | None]]:
    return (
        (names.NODE_GPU_USE, gpu.utilisation),
        (names.NODE_GPU_TEMPERATURE, gpu.temperature_c),
        (names.NODE_GPU_POWER, gpu.power_watts),
        (names.NODE_GPU_FREE, gpu.vram_free_bytes),
    )


def _server_samples(node: ShownNode, which: Labels) -> Iterator[MetricSample]:
    """A server counts for all its models together; where it has one, that is named."""
    models = [model.id for model in node.row.models.values()]
    labels = (*which, ("model", models[0] if len(models) == 1 else ""))
    yield from _known(((names.SERVER_KV, node.row.load.kv_used),), labels)
    server = node.server
    if server is None:
        return
    yield from _known(
        (
            (names.SERVER_RUNNING, server.running),
            (names.SERVER_WAITING, server.waiting),
            (names.SERVER_READ, server.prompt_tokens),
            (names.SERVER_WROTE, server.generation_tokens),
        ),
        labels,
    )
    yield from _summary(names.SERVER_FIRST_TOKEN, server.first_token_s, server.first_tokens, labels)
    yield from _summary(names.SERVER_DURATION, server.request_s, server.requests, labels)


def _known(values: Iterable[tuple[Metric, float | None]], labels: Labels) -> Iterator[MetricSample]:
    """A value that is not known has no sample: zero would be a lie."""
    for metric, value in values:
        if value is not None:
            yield metric, Sample(value, labels)


def _summary(metric: Metric, total: float | None, count: float | None, labels: Labels) -> Iterator[MetricSample]:
    if total is not None and count is not None:
        yield metric, Sample(total, labels, "_sum")
        yield metric, Sample(count, labels, "_count")
