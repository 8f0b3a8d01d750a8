"""What this machine is. On a machine without a GPU, VRAM means the memory that the model server may use."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from sparewatt.node.settings import NodeSettings

GB = 10**9
FLOPS_PER_CYCLE = 32
"""One core with 256-bit fused multiply-add on 32-bit floats: a claim, as a datasheet's is; speeds are measured."""
DEFAULT_GHZ = 2.5


@dataclass(frozen=True, slots=True)
class Hardware:
    gpu: str
    gpu_count: int
    vram_bytes: int
    tflops: float


def detect_hardware(settings: NodeSettings) -> Hardware:
    """The machine as found, with what the owner set by hand on top."""
    return Hardware(
        gpu=settings.gpu or "cpu",
        gpu_count=1 if settings.gpu else 0,
        vram_bytes=int(settings.vram_gb * GB) if settings.vram_gb else int(psutil.virtual_memory().available),
        tflops=settings.tflops or cpu_tflops(),
    )


def cpu_tflops() -> float:
    frequency = psutil.cpu_freq()
    ghz = frequency.max / 1000 if frequency and frequency.max else DEFAULT_GHZ
    return round((os.cpu_count() or 1) * ghz * FLOPS_PER_CYCLE / 1000, 3)
