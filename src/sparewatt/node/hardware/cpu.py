"""The processor: its theoretical TFLOPS, and its power draw where the kernel shows it (RAPL)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

FLOPS_PER_CYCLE = 32
"""One core with 256-bit fused multiply-add on 32-bit floats: a claim, as in a data sheet; speeds are measured."""
DEFAULT_GHZ = 2.5
POWERCAP = Path("/sys/class/powercap")
WATTS_MAX = 5_000.0
"""More means that the counter has wrapped around."""


def cpu_tflops() -> float:
    frequency = psutil.cpu_freq()
    ghz = frequency.max / 1000 if frequency and frequency.max else DEFAULT_GHZ
    return round((os.cpu_count() or 1) * ghz * FLOPS_PER_CYCLE / 1000, 3)


class CpuPower:
    """The mean power of all processor packages since the last call. Most systems let only root read it."""

    def __init__(self, *, now_s: Callable[[], float], root: Path = POWERCAP) -> None:
        self._now_s = now_s
        self._counters = _packages(root)
        self._before: tuple[float, int] | None = None

    def watts(self) -> float | None:
        try:
            microjoules = sum(int(counter.read_text()) for counter in self._counters)
        except (OSError, ValueError):
            return None
        now_s, before = self._now_s(), self._before
        self._before = (now_s, microjoules)
        if not self._counters or before is None or now_s <= before[0]:
            return None
        watts = (microjoules - before[1]) / 1e6 / (now_s - before[0])
        return round(watts, 2) if 0 <= watts < WATTS_MAX else None


def _packages(root: Path) -> list[Path]:
    """One counter for each package; `intel-rapl:0:1` and the like are parts of one."""
    try:
        found = sorted(path for path in root.glob("intel-rapl:*") if path.name.count(":") == 1)
    except OSError:
        return []
    return [path / "energy_uj" for path in found]
