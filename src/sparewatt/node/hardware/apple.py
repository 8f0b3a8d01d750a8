"""Apple's chips: GPU and processor share the memory. Power and temperature macOS tells only to root."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence

import psutil

from sparewatt.node.hardware.gpu import DetectedGpu, SensorReading

PROFILER = ("/usr/sbin/system_profiler", "-json", "SPDisplaysDataType")
SYSCTL_MEMORY = ("/usr/sbin/sysctl", "-n", "hw.memsize")
SYSTEM_VERSION = ("/usr/bin/sw_vers", "-productVersion")
GPU_SHARE = 0.75
"""Of the memory: what macOS lets the GPU hold on machines of usual size."""
ASK_S = 20.0


def run_program(argv: Sequence[str]) -> str:
    """What it prints; nothing if it is not there or does not end."""
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=ASK_S, check=False)  # noqa: S603 (fixed)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


class AppleProbe:
    def __init__(self, *, run: Callable[[Sequence[str]], str] = run_program, is_mac: bool | None = None) -> None:
        self._run = run
        self._is_mac = sys.platform == "darwin" if is_mac is None else is_mac
        self._found: list[DetectedGpu] | None = None

    def gpus(self) -> list[DetectedGpu]:
        if not self._is_mac:
            return []
        if self._found is None:
            self._found = self._detect()
        return self._found

    def read(self) -> list[SensorReading]:
        free = int(psutil.virtual_memory().available * GPU_SHARE)
        return [SensorReading(vram_free_bytes=free) for _ in self.gpus()]

    def _detect(self) -> list[DetectedGpu]:
        name = chip_of(self._run(PROFILER))
        memory = self._run(SYSCTL_MEMORY).strip()
        if name is None or not memory.isdigit():
            return []
        version = self._run(SYSTEM_VERSION).strip()
        driver = f"macOS {version}" if version else None
        return [DetectedGpu(vendor="apple", model=name, vram_bytes=int(int(memory) * GPU_SHARE), driver=driver)]


def chip_of(profile: str) -> str | None:
    """The GPU's name, with its cores, of a chip by Apple; Macs with Intel's have no GPU worth fronting."""
    try:
        displays = json.loads(profile)["SPDisplaysDataType"]
        for card in displays:
            name, cores = card.get("sppci_model"), card.get("sppci_cores")
            if isinstance(name, str) and name.startswith("Apple"):
                return f"{name} ({cores} cores)" if cores else name
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None
