"""NVML as it answers on a known machine, in the shape of the module `pynvml`.

Name, memory, driver, cores and clocks are readings of an H200. Power, temperature and use are made up, since they
change by the second; a test may set them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class RecordedNvml:
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    nvmlMemory_v2 = 0x02000028  # noqa: N815 (NVML's own name)

    def __init__(self, *, count: int = 1, refuses: tuple[str, ...] = ()) -> None:
        """`refuses`: questions that this driver or card does not answer."""
        self._count = count
        self._refuses = refuses
        self.milliwatts = 120_500
        self.celsius = 41
        self.busy_percent = 37
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name != "nvmlMemory_v2":
            self.calls.append(name)
            if name in self._refuses:
                raise NVMLError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802 (NVML's own names, here and below)
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> SimpleNamespace:  # noqa: N802
        total, free = 150_754_820_096, 150_109_880_320
        if version is None:
            return SimpleNamespace(total=total, free=free, used=total - free)
        return SimpleNamespace(total=total, free=free, used=0, reserved=total - free)

    def nvmlDeviceGetNumGpuCores(self, handle: int) -> int:  # noqa: N802
        return 16896

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return self.milliwatts

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.celsius

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=self.busy_percent, memory=3)
