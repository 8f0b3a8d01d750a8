from __future__ import annotations

import threading

import pytest

from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.node.hardware.sensor_sampler import STALE_S, SensorSampler, total_watts
from sparewatt.protocol.link.node_report import GpuReading, validated
from sparewatt.testing.clocks import ManualClock
from tests.waiting import until


class FakeGpuProbe:
    def __init__(self) -> None:
        self.watts: float | None = 100.0
        self.reads = 0

    def gpus(self) -> list[DetectedGpu]:
        return [DetectedGpu("nvidia", "card", 10**9)]

    def read(self) -> list[GpuReading]:
        self.reads += 1
        return [GpuReading(5 * 10**8, self.watts, 50.0, 0.5)]


def test_power_while_working_is_averaged_separately() -> None:
    clock, probe, working = ManualClock(), FakeGpuProbe(), [False]
    sampler = SensorSampler(probe, None, clock=clock, is_working=lambda: working[0])
    sampler.sample()
    clock.advance(4)
    sampler.sample()
    working[0], probe.watts = True, 300.0
    clock.advance(2)
    sampler.sample()
    report = sampler.report()
    assert report is not None
    assert validated(report) == report
    assert report.power_watts == round((4 * 100 + 2 * 300) / 6, 2)
    assert (report.working_watts, report.working_s) == (300.0, 2.0)
    assert report.gpus == (GpuReading(5 * 10**8, 300.0, 50.0, 0.5),)


def test_a_report_covers_the_samples_since_the_last_report() -> None:
    clock, probe = ManualClock(), FakeGpuProbe()
    sampler = SensorSampler(probe, None, clock=clock, is_working=lambda: True)
    for _ in range(3):
        sampler.sample()
        clock.advance(1)
    first, second = sampler.report(), sampler.report()
    assert first is not None
    assert first.working_s == 2.0
    assert second is not None
    assert (second.working_s, second.working_watts, second.power_watts) == (0.0, None, 100.0)


def test_a_stale_reading_of_a_hung_driver_is_not_reported() -> None:
    clock = ManualClock()
    sampler = SensorSampler(FakeGpuProbe(), None, clock=clock)
    sampler.sample()
    clock.advance(STALE_S + 1)
    assert sampler.latest() == ((), None)
    assert sampler.report() is None


def test_one_gpu_without_a_power_reading_makes_the_sum_unknown() -> None:
    assert total_watts([GpuReading(power_watts=10), GpuReading()], 5.0) is None
    assert total_watts([GpuReading(power_watts=10)], None) == 10.0
    assert total_watts([], 5.0) == 5.0
    assert total_watts([], None) is None


async def test_the_thread_goes_on_after_a_driver_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.node.hardware.sensor_sampler.SAMPLE_S", 0.01)
    failed = threading.Event()

    class Shaky(FakeGpuProbe):
        def read(self) -> list[GpuReading]:
            if not failed.is_set():
                failed.set()
                raise OSError("driver")
            return super().read()

    probe, clock = Shaky(), ManualClock()
    sampler = SensorSampler(probe, None, clock=clock)
    sampler.start()
    try:
        await until(lambda: probe.reads > 0)
    finally:
        sampler.stop()
