"""Whether the machine is busy with something else: then a measurement would say little about its model.

Asked while the model server is idle. A machine with a GPU is judged by the GPU's use, another by its processor's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.protocol.link.node_report import GpuReading

LOOK_S = 0.25
"""So long is the processor watched."""
CPU_BUSY_SHARE = 0.25
GPU_BUSY_SHARE = 0.25


class MachineUse:
    def __init__(
        self,
        *,
        clock: Clock,
        gpu_readings: Callable[[], Sequence[GpuReading]] = lambda: (),
        cpu_seconds: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        """`cpu_seconds`: idle seconds of all cores together, and all seconds, since some time."""
        self._clock = clock
        self._gpu_readings = gpu_readings
        self._cpu_seconds = cpu_seconds or system_cpu_seconds

    async def busy_with(self, *, after_work: bool = False) -> str | None:
        """What keeps it busy, in words; None if it is idle. A GPU's reading after our own work would be of that."""
        readings = self._gpu_readings()
        if not readings:
            return await self._processor_busy_with()
        used = max(reading.utilisation or 0.0 for reading in readings)
        return f"a GPU is {used:.0%} in use" if used > GPU_BUSY_SHARE and not after_work else None

    async def _processor_busy_with(self) -> str | None:
        idle_s, all_s = self._cpu_seconds()
        await sleep_until(self._clock, self._clock.now_s() + LOOK_S)
        idle_after_s, all_after_s = self._cpu_seconds()
        passed_s = all_after_s - all_s
        used = 1 - (idle_after_s - idle_s) / passed_s if passed_s > 0 else 0.0
        return f"the processor is {used:.0%} in use" if used > CPU_BUSY_SHARE else None


def system_cpu_seconds() -> tuple[float, float]:
    times = psutil.cpu_times()
    return times.idle + getattr(times, "iowait", 0.0), float(sum(times[:8]))
