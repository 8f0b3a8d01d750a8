"""Keeps reading the sensors: what each GPU does now, and what the machine drew while it worked for the network.

A thread of its own, since a driver may take its time or hang; then the last reading grows old and is not told any more.
Nobody waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.node.hardware.cpu import CpuPower
from sparewatt.node.hardware.gpu import GpuProbe, SensorReading
from sparewatt.protocol.link.node_report import GpuReading, Sensors

_log = Logger("sparewatt.node")
EVERY_S = 1.0
STALE_S = 30.0
"""A reading older than this is not told: the driver hangs."""
WORKING_S_MAX = 3600.0


class SensorSampler:
    def __init__(
        self,
        probe: GpuProbe,
        cpu: CpuPower | None,
        *,
        clock: Clock,
        is_working: Callable[[], bool] = lambda: False,
    ) -> None:
        self._probe = probe
        self._cpu = cpu
        self._clock = clock
        self.is_working = is_working
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._at_s: float | None = None
        self._readings: list[SensorReading] = []
        self._watts: float | None = None
        self._all, self._working = _Energy(), _Energy()

    def start(self) -> None:
        """Keep sampling until `stop`. The thread does not keep the process alive."""
        threading.Thread(target=self._run, name="sensing", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 (a driver's trouble must not end the reading of the others for good)
                _log.warning("sensors_failed", why=repr(error)[:200])

    def sample(self) -> None:
        readings = self._probe.read()
        watts = total_watts(readings, self._cpu.watts() if self._cpu is not None else None)
        now_s, working = self._clock.now_s(), self.is_working()
        with self._lock:
            passed_s = 0.0 if self._at_s is None else max(0.0, min(now_s - self._at_s, STALE_S))
            self._at_s, self._readings, self._watts = now_s, readings, watts
            if watts is not None:
                self._all.add(watts, passed_s)
                if working:
                    self._working.add(watts, passed_s)

    def latest(self) -> tuple[Sequence[SensorReading], float | None]:
        """Of each GPU, and what all of it draws; nothing if that is too long ago."""
        with self._lock:
            is_fresh = self._at_s is not None and self._clock.now_s() - self._at_s <= STALE_S
            return (list(self._readings), self._watts) if is_fresh else ((), None)

    def report(self) -> Sensors | None:
        """What was measured since the report before; None if nothing was."""
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
            gpus=tuple(map(as_gpu_reading, readings)),
        )


class _Energy:
    def __init__(self) -> None:
        self.joules = self.seconds = 0.0

    def add(self, watts: float, seconds: float) -> None:
        self.joules += watts * seconds
        self.seconds += seconds

    def mean_watts(self) -> float | None:
        return round(self.joules / self.seconds, 2) if self.seconds > 0 else None


def total_watts(readings: Sequence[SensorReading], cpu_watts: float | None) -> float | None:
    """Of what is known. A GPU that does not tell makes the sum too small to be told."""
    of_gpus = [reading.power_watts for reading in readings]
    if any(watts is None for watts in of_gpus):
        return None
    known = [watts for watts in (*of_gpus, cpu_watts) if watts is not None]
    return round(sum(known), 2) if known else None


def as_gpu_reading(reading: SensorReading) -> GpuReading:
    return GpuReading(
        vram_free_bytes=reading.vram_free_bytes,
        power_watts=reading.power_watts,
        temperature_c=reading.temperature_c,
        utilisation=reading.utilisation,
    )
