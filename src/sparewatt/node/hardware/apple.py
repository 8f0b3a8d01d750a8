"""Apple's chips, whose GPU and processor share the memory. macOS shows power and temperature to root only."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence

import psutil

from sparewatt.node.hardware.gpu import DetectedGpu, run_program
from sparewatt.protocol.link.node_report import GpuReading

PROFILER = ("/usr/sbin/system_profiler", "-json", "SPDisplaysDataType")
SYSCTL_MEMORY = ("/usr/sbin/sysctl", "-n", "hw.memsize")
SYSTEM_VERSION = ("/usr/bin/sw_vers", "-productVersion")
GPU_SHARE = 0.75
"""Of the memory: what macOS lets the GPU use on machines of usual size."""


class AppleProbe:
    def __init__(self, *, run: Callable[[Sequence[str]], str] = run_program, is_mac: bool | None = None) -> None:
        self._run = run
        self._is_mac = sys.platform == "darwin" if is_mac is None else is_mac

    def gpus(self) -> list[DetectedGpu]:
        return self._found

    def read(self) -> list[GpuReading]:
        free = int(psutil.virtual_memory().available * GPU_SHARE)
        return [GpuReading(vram_free_bytes=free) for _ in self.gpus()]

    @functools.cached_property
    def _found(self) -> list[DetectedGpu]:
        if not self._is_mac:
            return []
        name = chip_of(self._run(PROFILER))
        memory = self._run(SYSCTL_MEMORY).strip()
        if name is None or not memory.isdigit():
            return []
        version = self._run(SYSTEM_VERSION).strip()
        driver = f"macOS {version}" if version else None
        return [DetectedGpu(vendor="apple", model=name, vram_bytes=int(int(memory) * GPU_SHARE), driver=driver)]


def chip_of(profile: str) -> str | None:
    """The GPU's name and cores, if the chip is Apple's; Macs with Intel chips have no GPU of use here."""
    try:
        displays = json.loads(profile)["SPDisplaysDataType"]
        for card in displays:
            name, cores = card.get("sppci_model"), card.get("sppci_cores")
            if isinstance(name, str) and name.startswith("Apple"):
                return f"{name} ({cores} cores)" if cores else name
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None
