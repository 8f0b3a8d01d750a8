"""Detects this machine's hardware: GPUs of all vendors, overridden by what the owner set by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import psutil

from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.core.log import Logger
from sparewatt.node.hardware.amd import AmdProbe
from sparewatt.node.hardware.apple import AppleProbe
from sparewatt.node.hardware.cpu import cpu_tflops
from sparewatt.node.hardware.gpu import GB, DetectedGpu, GpuProbe, Hardware
from sparewatt.node.hardware.nvidia import NvidiaProbe
from sparewatt.node.settings import NodeSettings
from sparewatt.policy.gpu_figures import fp16_tflops_of
from sparewatt.protocol.link.node_report import GPUS_MAX, GpuReading

_log = Logger("sparewatt.node")


class HostGpuProbe:
    """All GPUs of this machine as one probe."""

    def __init__(self, probes: Sequence[GpuProbe] | None = None) -> None:
        probes = (NvidiaProbe(), AmdProbe(), AppleProbe()) if probes is None else probes
        found = [(probe, gpus) for probe in probes if (gpus := _gpus_of(probe))]
        self._probes = [probe for probe, _ in found]
        self._gpus = [gpu for _, gpus in found for gpu in gpus][:GPUS_MAX]

    def gpus(self) -> list[DetectedGpu]:
        return self._gpus

    def read(self) -> list[GpuReading]:
        readings = [reading for probe in self._probes for reading in probe.read()]
        return (readings + [GpuReading()] * len(self._gpus))[: len(self._gpus)]


def _gpus_of(probe: GpuProbe) -> list[DetectedGpu]:
    """A broken driver must not keep a node from starting."""
    try:
        return probe.gpus()
    except Exception as error:  # noqa: BLE001 (a driver may raise anything)
        _log.warning("gpu_probe_failed", probe=type(probe).__name__, why=repr(error)[:200])
        return []


def describe_hardware(settings: NodeSettings, gpus: Sequence[DetectedGpu]) -> Hardware:
    """Without a GPU, VRAM means the memory that the model server may use. Where the driver does not tell the compute of
    a card, its data sheet does."""
    if not gpus:
        by_name = fp16_tflops_of(settings.gpu) if settings.gpu else None
        vram_bytes, tflops = int(psutil.virtual_memory().available), by_name or cpu_tflops()
    else:
        vram_bytes, tflops = sum(gpu.vram_bytes for gpu in gpus), sum(gpu.tflops or 0.0 for gpu in gpus)
    name = settings.gpu or gpu_name(gpus)
    return Hardware(
        gpu=name,
        gpu_count=len(gpus) or (1 if settings.gpu else 0),
        vram_bytes=int(settings.vram_gb * GB) if settings.vram_gb else vram_bytes,
        tflops=settings.tflops or round(tflops, 3) or (fp16_tflops_of(name) or 0.0) * len(gpus),
        gpus=tuple(gpus),
    )


def gpu_name(gpus: Sequence[DetectedGpu]) -> str:
    """The most frequent model; `cpu` on a machine without one."""
    if not gpus:
        return "cpu"
    (model, _), *_ = Counter(gpu.model for gpu in gpus).most_common(1)
    return "".join(char for char in model if char.isprintable())[:NAME_CHARS_MAX] or "gpu"
