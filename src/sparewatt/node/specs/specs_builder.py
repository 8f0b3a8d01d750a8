"""Builds a node's specs from the owner's settings, the detected hardware, and what was measured. Pure."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt import __version__
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.core.money import Nano, parse_usd
from sparewatt.node.backends.backend import BackendLoad, BackendModel
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.link.lease_offer import LeaseOffer
from sparewatt.protocol.link.node_report import (
    COUNT_MAX,
    TFLOPS_MAX,
    Capability,
    GpuSpec,
    ModelReport,
    NodeSpecs,
    PriceBasis,
    ServerMetrics,
    Speed,
)
from sparewatt.protocol.link.reference_load import reference_price


@dataclass(frozen=True, slots=True)
class BackendSpecs:
    """What is known about the model server."""

    kind: str
    slots: int
    models: Sequence[BackendModel]
    bandwidth_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpecsBuilder:
    settings: NodeSettings
    hardware: Hardware
    speed_of: Callable[[BackendModel], Speed | None]
    price_basis_of: Callable[[BackendModel], PriceBasis | None] = lambda _: None
    probed_capabilities: Callable[[BackendModel], tuple[Capability, ...]] = lambda _: ()
    """In addition to what the server reports."""
    gpu_speed: GpuSpeed | None = None
    lease_offer: Callable[[NodeSettings], LeaseOffer] | None = None

    def build(self, backend: BackendSpecs) -> NodeSpecs:
        settings, hardware = self.settings, self.hardware
        return NodeSpecs(
            name=settings.name or (socket.gethostname()[:NAME_CHARS_MAX] or "node"),
            region=settings.region,
            gpu=hardware.gpu,
            gpu_count=hardware.gpu_count,
            vram_bytes=hardware.vram_bytes,
            tflops=hardware.tflops,
            hourly_price_nano=parse_usd(settings.hourly_usd),
            slots=backend.slots,
            backend=backend.kind,
            agent_version=__version__,
            models=tuple(self.model_report(model) for model in backend.models),
            tflops_measured=self._tflops_measured(backend.models),
            bandwidth_bytes_s=backend.bandwidth_bytes_s,
            gpus=tuple(self._gpu(index, gpu) for index, gpu in enumerate(hardware.gpus)),
            fetch_hosts=settings.fetch_hosts(),
            leases=settings.leases,
            lease_offer=self.lease_offer(settings) if settings.leases and self.lease_offer is not None else None,
        )

    def model_report(self, model: BackendModel) -> ModelReport:
        basis = self.price_basis_of(model)
        prompt_price, completion_price = token_prices(self.settings, basis)
        return ModelReport(
            id=model.id,
            state=model.state,
            weights_bytes=model.weights_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            prompt_price_nano=prompt_price,
            completion_price_nano=completion_price,
            context_length=model.context_length,
            quantization=model.quantization,
            claimed=self._claimed(model),
            measured=self.speed_of(model),
            prefix_cache_tokens=model.prefix_cache_tokens,
            capabilities=self._capabilities(model),
            weights_digest=model.weights_digest,
            price_basis=basis,
        )

    def _capabilities(self, model: BackendModel) -> tuple[Capability, ...] | None:
        found = self.probed_capabilities(model)
        if model.capabilities is None and not found:
            return None
        return tuple(dict.fromkeys((*(model.capabilities or ("chat",)), *found)))

    def _claimed(self, model: BackendModel) -> Speed | None:
        """The prefill speed that the claimed TFLOPS would give: two operations per parameter and token."""
        parameters = model.active_parameters or model.parameters
        if not parameters or not self.hardware.tflops:
            return None
        prefill = max(1e-3, min(1e7, self.hardware.tflops * 1e12 / (2 * parameters)))
        return Speed(prefill_tps=prefill, decode_tps=prefill)

    def _tflops_measured(self, models: Sequence[BackendModel]) -> float | None:
        """By the GPU benchmark (matrix product); else by the fastest measured prefill."""
        if self.gpu_speed is not None and self.gpu_speed.fp16_tflops is not None:
            return min(TFLOPS_MAX, round(self.gpu_speed.fp16_tflops, 3))
        reached = [
            2 * parameters * speed.prefill_tps / 1e12
            for model in models
            if (parameters := model.active_parameters or model.parameters) and (speed := self.speed_of(model))
        ]
        return min(TFLOPS_MAX, round(max(reached), 6)) if reached else None

    def _gpu(self, index: int, gpu: DetectedGpu) -> GpuSpec:
        """Only the first one is benchmarked."""
        speed = self.gpu_speed if index == 0 else None
        return GpuSpec(
            model="".join(char for char in gpu.model if char.isprintable())[:NAME_CHARS_MAX] or "gpu",
            vram_bytes=gpu.vram_bytes,
            vendor=gpu.vendor,
            driver=gpu.driver[:NAME_CHARS_MAX] if gpu.driver else None,
            copy_bytes_s=speed.copy_bytes_s if speed else None,
            fp16_tflops=speed.fp16_tflops if speed else None,
        )


def token_prices(settings: NodeSettings, basis: PriceBasis | None) -> tuple[Nano, Nano]:
    """Per million prompt and completion tokens: what the owner set, else what the hour costs at the reference load.

    Without either they are 0, and the model gets no job until it is measured. Raises InvalidAmount.
    """
    hourly = parse_usd(settings.hourly_usd)
    return (
        _token_price(settings.prompt_usd_per_mtok, hourly, basis.prompt_tps if basis else None),
        _token_price(settings.completion_usd_per_mtok, hourly, basis.completion_tps if basis else None),
    )


def _token_price(usd: str | None, hourly: Nano, tokens_per_s: float | None) -> Nano:
    if usd:
        return parse_usd(usd)
    return reference_price(hourly, tokens_per_s) if tokens_per_s else Nano(0)


def server_metrics(load: BackendLoad) -> ServerMetrics:
    """What the model server reports about itself, within the bounds of a report, for operators."""
    totals = load.totals
    return ServerMetrics(
        running=min(COUNT_MAX, load.running),
        waiting=min(COUNT_MAX, load.queued),
        prompt_tokens=totals.prompt_tokens,
        generation_tokens=totals.generation_tokens,
        first_token_s=totals.first_token_s,
        first_tokens=totals.first_tokens,
        request_s=totals.request_s,
        requests=totals.requests,
    )
