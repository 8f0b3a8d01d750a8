"""One small interface for every kind of GPU. Nothing here may raise for a driver's sake: what is not told is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

GB = 10**9


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    """One GPU as its driver describes it."""

    vendor: str
    model: str
    vram_bytes: int
    """What programs may use: without what the driver keeps for itself."""
    driver: str | None = None
    tflops: float | None = None
    """At 32 bits, by cores and clock: a claim, as a datasheet's is."""


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One GPU now."""

    vram_free_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None
    """Share of the last moments in which it worked."""


class GpuProbe(Protocol):
    """Asks one vendor's GPUs. Blocking, but for milliseconds; called from one thread at a time."""

    def gpus(self) -> list[DetectedGpu]:
        """Those of this machine, always in the same order. Empty when there are none."""
        ...

    def read(self) -> list[SensorReading]:
        """One for each of `gpus()`."""
        ...


@dataclass(frozen=True, slots=True)
class Hardware:
    """All of it as one: what a report to a gateway says."""

    gpu: str
    gpu_count: int
    vram_bytes: int
    tflops: float
    gpus: tuple[DetectedGpu, ...] = ()
