"""Families about nodes one by one, with what their model servers say of themselves. Only where that is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparewatt.core.limits import METRICS_NODES_MAX
from sparewatt.gateway.metrics import names
from sparewatt.gateway.metrics.model import Labels, Metric, Sample, Samples, family
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.node import GpuReading, Sensors, ServerFigures


class Seen(NamedTuple):
    """One node, and all that is told of it."""

    row: NodeRow
    is_up: bool
    tokens: int
    sensors: Sensors | None
    server: ServerFigures | None


Found = tuple[Metric, Sample]


class Roll:
    """Samples are found by node, and told by family, as the format wants it."""

    def __init__(self, services: Services) -> None:
        self._desk = services.desk
        self._tokens = services.meters.jobs.node_tokens
        self._now_s, self._rules = services.clock.now_s(), services.health
        self._by_metric: dict[Metric, list[Sample]] = {}

    def add(self, row: NodeRow) -> None:
        for metric, sample in samples_of(self._seen(row)):
            self._by_metric.setdefault(metric, []).append(sample)

    def _seen(self, row: NodeRow) -> Seen:
        return Seen(
            row,
            is_up=state_of(row, now_s=self._now_s, rules=self._rules) is not NodeState.OFFLINE,
            tokens=self._tokens.get(row.id, 0),
            sensors=self._desk.power.latest(row.id),
            server=self._desk.servers.get(row.id),
        )

    def families(self) -> Samples:
        return [family(metric, *samples) for metric, samples in self._by_metric.items()]


def chosen(rows: Sequence[NodeRow]) -> Sequence[NodeRow]:
    """Of very many, those that are there come first."""
    if len(rows) <= METRICS_NODES_MAX:
        return rows
    return sorted(rows, key=lambda row: (not row.connected, row.index))[:METRICS_NODES_MAX]


def samples_of(node: Seen) -> Iterator[Found]:
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
    yield from _sensed(node.sensors, which)
    yield from _served(node, which)


def _info(row: NodeRow) -> Labels:
    specs = row.specs
    return (
        ("name", specs.name),
        ("region", specs.region),
        ("gpu", specs.gpu),
        ("backend", specs.backend),
        ("version", specs.agent_version),
    )


def _sensed(sensors: Sensors | None, which: Labels) -> Iterator[Found]:
    if sensors is None:
        return
    yield from _told(((names.NODE_POWER, sensors.power_watts),), which)
    for at, gpu in enumerate(sensors.gpus):
        yield from _told(_of_gpu(gpu), (*which, ("gpu", str(at))))


def _of_gpu(gpu: GpuReading) -> Iterable[tuple[Metric, float | None]]:
    return (
        (names.NODE_GPU_USE, gpu.utilisation),
        (names.NODE_GPU_TEMPERATURE, gpu.temperature_c),
        (names.NODE_GPU_POWER, gpu.power_watts),
        (names.NODE_GPU_FREE, gpu.vram_free_bytes),
    )


def _served(node: Seen, which: Labels) -> Iterator[Found]:
    """A server counts for all its models together; where it has one, that is named."""
    models = [model.id for model in node.row.models.values()]
    labels = (*which, ("model", models[0] if len(models) == 1 else ""))
    yield from _told(((names.SERVER_KV, node.row.load.kv_used),), labels)
    server = node.server
    if server is None:
        return
    yield from _told(
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


def _told(values: Iterable[tuple[Metric, float | None]], labels: Labels) -> Iterator[Found]:
    """What is not known has no sample: zero would be a lie."""
    for metric, value in values:
        if value is not None:
            yield metric, Sample(value, labels)


def _summary(metric: Metric, total: float | None, count: float | None, labels: Labels) -> Iterator[Found]:
    if total is not None and count is not None:
        yield metric, Sample(total, labels, "_sum")
        yield metric, Sample(count, labels, "_count")
