"""Builds the reply type `Node` from a row of the node table. Pure: who may see what is decided by its caller."""

from __future__ import annotations

from sparewatt.cluster.questions import NodeWork
from sparewatt.core.money import format_usd
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.inference.metering.derivation import derivation_of, is_paid_by_the_hour
from sparewatt.protocol.api.nodes import (
    GpuMeasures,
    GpuSensors,
    ModelPrice,
    ModelSpeed,
    Node,
    NodeClaims,
    NodeGpu,
    NodeMeasures,
    NodeModel,
    NodeSensors,
)
from sparewatt.protocol.link.node_report import GpuSpec, ModelReport, NodeSpecs, Sensors, Speed


def node_of(
    row: NodeRow,
    *,
    handle: str,
    state: NodeState,
    work: NodeWork,
    last_seen_unix_s: float | None,
    is_own: bool,
    sensors: Sensors | None,
) -> Node:
    """`work`: this gateway's jobs on the node. `is_own`: whether the caller owns the node."""
    specs = row.specs
    return Node(
        id=row.id,
        handle=handle,
        name=specs.name,
        region=specs.region,
        state=state.value,
        gpu=specs.gpu,
        gpu_count=specs.gpu_count,
        agent_version=specs.agent_version,
        backend=specs.backend,
        claimed=NodeClaims(vram_bytes=specs.vram_bytes, tflops=specs.tflops, hourly_usd=_hourly_usd(specs)),
        measured=NodeMeasures(tflops=specs.tflops_measured),
        gpus=[_gpu_of(gpu) for gpu in specs.gpus],
        paused=row.load.paused,
        kv_used=row.load.kv_used,
        models=[_model_of(model, hourly_price_nano=specs.hourly_price_nano) for model in specs.models],
        running=row.load.running,
        queued=row.load.queued,
        slots=specs.slots,
        rtt_ms=round(row.rtt_s * 1000, 3),
        in_flight=work.in_flight,
        jobs_done=work.done,
        jobs_failed=work.failed,
        last_seen_at=last_seen_unix_s,
        yours=is_own,
        sensors=_sensors_of(sensors),
    )


def _hourly_usd(specs: NodeSpecs) -> str | None:
    has_hourly_price = is_paid_by_the_hour(specs.models, hourly_price_nano=specs.hourly_price_nano)
    return format_usd(specs.hourly_price_nano) if has_hourly_price else None


def _gpu_of(gpu: GpuSpec) -> NodeGpu:
    return NodeGpu(
        model=gpu.model,
        vendor=gpu.vendor,
        driver=gpu.driver,
        vram_bytes=gpu.vram_bytes,
        measured=GpuMeasures(copy_bytes_s=gpu.copy_bytes_s, fp16_tflops=gpu.fp16_tflops),
    )


def _model_of(model: ModelReport, *, hourly_price_nano: int) -> NodeModel:
    derivation = derivation_of(model, hourly_price_nano=hourly_price_nano)
    return NodeModel(
        id=model.id,
        state=model.state,
        context_length=model.context_length,
        quantization=model.quantization,
        weights_digest=model.weights_digest,
        capabilities=model.capabilities,
        claimed=_speed_of(model.claimed),
        measured=_speed_of(model.measured),
        price=ModelPrice(
            prompt_usd_per_mtok=format_usd(model.prompt_price_nano),
            completion_usd_per_mtok=format_usd(model.completion_price_nano),
            prompt_derivation=derivation.prompt,
            completion_derivation=derivation.completion,
        ),
    )


def _speed_of(speed: Speed | None) -> ModelSpeed | None:
    if speed is None:
        return None
    if speed.batch is None or speed.batch_decode_tps is None or speed.batch_ttft_s is None:
        return ModelSpeed(ttft_s=speed.ttft_s, prefill_tps=speed.prefill_tps, decode_tps=speed.decode_tps)
    return ModelSpeed(
        ttft_s=speed.ttft_s,
        prefill_tps=speed.prefill_tps,
        decode_tps=speed.decode_tps,
        batch=speed.batch,
        batch_decode_tps=speed.batch_decode_tps,
        batch_ttft_s=speed.batch_ttft_s,
    )


def _sensors_of(sensors: Sensors | None) -> NodeSensors | None:
    if sensors is None:
        return None
    return NodeSensors(
        power_watts=sensors.power_watts,
        gpus=[
            GpuSensors(
                vram_free_bytes=gpu.vram_free_bytes,
                power_watts=gpu.power_watts,
                temperature_c=gpu.temperature_c,
                utilisation=gpu.utilisation,
            )
            for gpu in sensors.gpus
        ],
    )
