from __future__ import annotations

import pytest

from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.node.hardware.nvidia import NvidiaProbe
from sparewatt.protocol.link.node_report import GpuReading
from tests.contract.nvml import RecordedNvml


def test_an_h200_is_described_with_the_memory_that_programs_may_use() -> None:
    (gpu,) = NvidiaProbe(RecordedNvml()).gpus()
    assert gpu == DetectedGpu("nvidia", "NVIDIA H200", 150_109_880_320, "580.159.04", tflops=66.91)


def test_its_reading_is_in_watts_degrees_and_shares() -> None:
    (reading,) = NvidiaProbe(RecordedNvml()).read()
    assert reading == GpuReading(150_109_880_320, 120.5, 41.0, 0.37)


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetUtilizationRates", "utilisation"),
        ("nvmlDeviceGetMemoryInfo", "vram_free_bytes"),
    ],
)
def test_an_unsupported_nvml_call_makes_only_its_own_figure_unknown(question: str, field: str) -> None:
    (reading,) = NvidiaProbe(RecordedNvml(refuses=(question,))).read()
    unknown = {name for name in GpuReading.__struct_fields__ if getattr(reading, name) is None}
    assert unknown == {field}


@pytest.mark.parametrize("question", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_a_driver_that_does_not_answer_at_all_means_no_gpu(question: str) -> None:
    probe = NvidiaProbe(RecordedNvml(refuses=(question,)))
    assert (probe.gpus(), probe.read()) == ([], [])


def test_gpus_are_detected_once() -> None:
    nvml = RecordedNvml(count=2)
    probe = NvidiaProbe(nvml)
    assert len(probe.gpus()) == len(probe.read()) == 2
    assert nvml.calls.count("nvmlInit") == 1
