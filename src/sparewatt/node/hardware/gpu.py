"""The interface to GPUs of every vendor. A driver's failure is never raised: what it does not report is None."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.protocol.link.node_report import GpuReading

GB = 10**9
PROGRAM_S = 20.0


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    """One GPU as its driver describes it."""

    vendor: str
    model: str
    vram_bytes: int
    """What programs may use, without what the driver reserves."""
    driver: str | None = None
    tflops: float | None = None
    """At 32 bits, from cores and clock: a claim, as in a data sheet."""


class GpuProbe(Protocol):
    """One vendor's GPUs. Blocks, but only for milliseconds; called from one thread at a time."""

    def gpus(self) -> list[DetectedGpu]:
        """Always in the same order; empty if there are none."""
        ...

    def read(self) -> list[GpuReading]:
        """One for each of `gpus()`."""
        ...


@dataclass(frozen=True, slots=True)
class Hardware:
    """The whole machine, as a report to a gateway has it."""

    gpu: str
    gpu_count: int
    vram_bytes: int
    tflops: float
    gpus: tuple[DetectedGpu, ...] = ()


def run_program(argv: Sequence[str]) -> str:
    """Its output; empty if it is not installed or does not end."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PROGRAM_S, check=False)  # noqa: S603 (fixed)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
