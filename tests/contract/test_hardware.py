"""The contract of a GPU probe: recorded NVML answers everywhere, the real NVML where there is one."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import pytest

from sparewatt.node.hardware.detection import HostGpuProbe, describe_hardware
from sparewatt.node.hardware.nvidia import NvidiaProbe
from sparewatt.protocol.link.node_report import validated
from tests.contract.nvml import RecordedNvml
from tests.unit.node.rig import node_settings


def real_nvml() -> Any:
    module = importlib.import_module("pynvml")
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        pytest.skip(f"no NVIDIA driver on this machine ({error})")
    return module


@pytest.fixture(params=[RecordedNvml, real_nvml], ids=["recorded", "real"])
def nvml(request: pytest.FixtureRequest) -> Any:
    make: Callable[[], Any] = request.param
    return make()


class TestProbeContract:
    def test_every_gpu_is_described(self, nvml: Any) -> None:
        gpus = NvidiaProbe(nvml).gpus()

        assert gpus
        assert all(gpu.vendor == "nvidia" and gpu.model and gpu.driver and gpu.vram_bytes > 0 for gpu in gpus)

    def test_every_gpu_has_a_reading_within_bounds(self, nvml: Any) -> None:
        probe = NvidiaProbe(nvml)
        readings = probe.read()

        assert len(readings) == len(probe.gpus())
        for gpu, reading in zip(probe.gpus(), readings, strict=True):
            assert reading.vram_free_bytes is not None
            assert 0 <= reading.vram_free_bytes <= gpu.vram_bytes + (1 << 30)
            told = (reading.power_watts, reading.temperature_c, reading.utilisation)
            assert all(value is None or math.isfinite(value) for value in told)

    def test_what_is_found_can_be_reported(self, nvml: Any, tmp_path: Any) -> None:
        from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder

        hardware = describe_hardware(node_settings(tmp_path), HostGpuProbe([NvidiaProbe(nvml)]).gpus())
        specs = SpecsBuilder(node_settings(tmp_path), hardware, speed_of=lambda _: None).build(BackendSpecs("x", 1, ()))
        assert validated(specs) == specs
        assert specs.gpu_count == len(specs.gpus) > 0
