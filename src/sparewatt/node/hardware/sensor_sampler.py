"""Samples the sensors once a second: what each GPU does now, and the power drawn while jobs ran.

It has its own thread, since a driver may be slow or hang. A stale reading is not reported, and no caller ever waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.node.hardware.cpu import CpuPower
from sparewatt.node.hardware.gpu import GpuProbe
from sparewatt.protocol.link.node_report import GpuReading, Sensors

_log = Logger("sparewatt.node")
SAMPLE_S = 1.0
STALE_S = 30.0
"""An older reading is not reported: the driver hangs."""
WORKING_S_MAX = 3600.0


class SensorSampler:
    def __init__(
        self, probe: GpuProbe, cpu: CpuPower | None, *, clock: Clock, is_working: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_working`: whether jobs run now."""
        self._probe = probe
        self._cpu = cpu
        self._clock = clock
        self._is_working = is_working
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._at_s: float | None = None
        self._readings: list[GpuReading] = []
        self._watts: float | None = None
        self._all, self._working = _Energy(), _Energy()

    def start(self) -> None:
        """Sample until `stop`. The thread does not keep the process alive."""
        threading.Thread(target=self._run, name="sensing", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 (a driver may raise anything, and the thread must go on)
                _log.warning("sensors_failed", why=repr(error)[:200])

    def sample(self) -> None:
        readings = self._probe.read()
        watts = total_watts(readings, self._cpu.watts() if self._cpu is not None else None)
        now_s, is_working = self._clock.now_s(), self._is_working()
        with self._lock:
            passed_s = 0.0 if self._at_s is None else max(0.0, min(now_s - self._at_s, STALE_S))
            self._at_s, self._readings, self._watts = now_s, readings, watts
            if watts is not None:
                self._all.add(watts, passed_s)
                if is_working:
                    self._working.add(watts, passed_s)

    def latest(self) -> tuple[Sequence[GpuReading], float | None]:
        """Each GPU, and the power of all of it; nothing if that is stale."""
        with self._lock:
            is_fresh = self._at_s is not None and self._clock.now_s() - self._at_s <= STALE_S
            return (list(self._readings), self._watts) if is_fresh else ((), None)

    def report(self) -> Sensors | None:
        """What was sampled since the last report; None if nothing was."""
        readings, watts = self.latest()
        with self._lock:
            everything, working = self._all, self._working
            self._all, self._working = _Energy(), _Energy()
        if not readings and watts is None:
            return None
        mean_watts = everything.mean_watts()
        return Sensors(
            power_watts=watts if mean_watts is None else mean_watts,
            working_watts=working.mean_watts(),
            working_s=round(min(working.seconds, WORKING_S_MAX), 3),
            gpus=tuple(readings),
        )


class _Energy:
    def __init__(self) -> None:
        self.joules = self.seconds = 0.0

    def add(self, watts: float, seconds: float) -> None:
        self.joules += watts * seconds
        self.seconds += seconds

    def mean_watts(self) -> float | None:
        return round(self.joules / self.seconds, 2) if self.seconds > 0 else None


def total_watts(readings: Sequence[GpuReading], cpu_watts: float | None) -> float | None:
    """None if a GPU does not report its power: the sum would be too small."""
    gpu_watts = [reading.power_watts for reading in readings]
    if any(watts is None for watts in gpu_watts):
        return None
    known = [watts for watts in (*gpu_watts, cpu_watts) if watts is not None]
    return round(sum(known), 2) if known else None
