"""NVIDIA's GPUs, through NVML. The wheel is pure Python; it loads the driver's own library, or fails without one.

Each call may fail by itself: old, virtual and laptop cards support some and not others. NVML is called through the
module `pynvml`; tests pass an object with recorded answers instead.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from sparewatt.core.log import Logger
from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.protocol.link.node_report import GpuReading

_log = Logger("sparewatt.node")
FLOPS_PER_CORE = 2
"""One fused multiply-add per cycle, at 32 bits."""


class NvidiaProbe:
    def __init__(self, nvml: Any = None) -> None:
        """`nvml`: the module `pynvml`; None imports the installed one."""
        self._nvml = nvml

    def gpus(self) -> list[DetectedGpu]:
        driver = _text(self._call("nvmlSystemGetDriverVersion")) if self._handles else None
        return [self._describe(handle, driver) for handle in self._handles]

    def read(self) -> list[GpuReading]:
        return [self._read(handle) for handle in self._handles]

    @functools.cached_property
    def _handles(self) -> list[Any]:
        """Of all GPUs; found once, since cards do not come and go."""
        try:
            nvml = self._nvml = self._nvml or importlib.import_module("pynvml")
            nvml.nvmlInit()
            return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except Exception as error:  # noqa: BLE001 (no wheel, no driver or a broken one: the node runs without)
            _log.info("nvml_absent", why=f"{type(error).__name__}: {error}"[:200])
            return []

    def _call(self, name: str, *arguments: Any) -> Any:
        """None where driver or card does not support the call."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except Exception:  # noqa: BLE001 (any of NVML's thirty errors means that there is no answer)
            return None

    def _describe(self, handle: Any, driver: str | None) -> DetectedGpu:
        return DetectedGpu(
            vendor="nvidia",
            model=_text(self._call("nvmlDeviceGetName", handle)) or "NVIDIA GPU",
            vram_bytes=self._usable_bytes(handle),
            driver=driver,
            tflops=self._tflops(handle),
        )

    def _usable_bytes(self, handle: Any) -> int:
        """Without what the driver reserves, even on an idle card, where it reports that."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = self._call("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
        memory = memory or self._call("nvmlDeviceGetMemoryInfo", handle)
        return max(0, int(memory.total) - int(getattr(memory, "reserved", 0))) if memory is not None else 0

    def _tflops(self, handle: Any) -> float | None:
        cores = self._call("nvmlDeviceGetNumGpuCores", handle)
        mhz = self._call("nvmlDeviceGetMaxClockInfo", handle, getattr(self._nvml, "NVML_CLOCK_SM", 1))
        return round(cores * FLOPS_PER_CORE * mhz / 1e6, 2) if cores and mhz else None

    def _read(self, handle: Any) -> GpuReading:
        memory = self._call("nvmlDeviceGetMemoryInfo", handle)
        rates = self._call("nvmlDeviceGetUtilizationRates", handle)
        celsius = self._call("nvmlDeviceGetTemperature", handle, getattr(self._nvml, "NVML_TEMPERATURE_GPU", 0))
        return GpuReading(
            vram_free_bytes=int(memory.free) if memory is not None else None,
            power_watts=_scaled(self._call("nvmlDeviceGetPowerUsage", handle), 1e-3, most=1e5),
            temperature_c=_scaled(celsius, 1.0, most=300),
            utilisation=_scaled(rates.gpu if rates is not None else None, 0.01, most=1.0),
        )


def _scaled(value: Any, by: float, *, most: float) -> float | None:
    return None if value is None else min(most, max(0.0, round(float(value) * by, 3)))


def _text(value: Any) -> str | None:
    """Older wheels return bytes."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text if isinstance(text, str) and text else None
