from __future__ import annotations

from pathlib import Path

from sparewatt.node.hardware.cpu import cpu_tflops
from sparewatt.node.hardware.detection import HostGpuProbe, describe_hardware, gpu_name
from sparewatt.node.hardware.gpu import GB, DetectedGpu
from sparewatt.node.hardware.nvidia import NvidiaProbe
from sparewatt.protocol.link.node_report import GpuReading
from tests.contract.nvml import RecordedNvml
from tests.unit.node.rig import node_settings


class Broken:
    def gpus(self) -> list[DetectedGpu]:
        raise RuntimeError("driver")

    def read(self) -> list[GpuReading]:
        return []


def test_a_probe_that_fails_does_not_hide_the_others() -> None:
    machine = HostGpuProbe([Broken(), NvidiaProbe(RecordedNvml(count=2))])
    assert [gpu.model for gpu in machine.gpus()] == ["NVIDIA H200"] * 2
    assert len(machine.read()) == 2


def test_gpus_are_reported_as_one_machine(tmp_path: Path) -> None:
    gpus = NvidiaProbe(RecordedNvml(count=2)).gpus()
    found = describe_hardware(node_settings(tmp_path), gpus)
    assert (found.gpu, found.gpu_count, found.vram_bytes, found.tflops) == (
        "NVIDIA H200",
        2,
        2 * 150_109_880_320,
        133.82,
    )


def test_settings_override_detected_gpus(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, gpu="my card", vram_gb=10, tflops=5)
    found = describe_hardware(settings, NvidiaProbe(RecordedNvml()).gpus())
    assert (found.gpu, found.gpu_count, found.vram_bytes, found.tflops) == ("my card", 1, 10 * 10**9, 5)


def test_settings_override_a_machine_without_a_gpu(tmp_path: Path) -> None:
    found = describe_hardware(node_settings(tmp_path, gpu="RTX 4090", vram_gb=24.0, tflops=82.6), [])
    assert (found.gpu, found.gpu_count, found.vram_bytes, found.tflops) == ("RTX 4090", 1, 24 * GB, 82.6)


def test_compute_that_no_driver_tells_is_that_of_the_data_sheet(tmp_path: Path) -> None:
    cards = [DetectedGpu("amd", "AMD Instinct MI300X", 192 * GB)] * 2
    assert describe_hardware(node_settings(tmp_path), cards).tflops == 2 * 1307
    assert describe_hardware(node_settings(tmp_path, gpu="RTX 4090"), []).tflops == 330
    assert describe_hardware(node_settings(tmp_path), [DetectedGpu("amd", "unheard of", GB)]).tflops == 0


def test_without_settings_a_machine_without_a_gpu_reports_its_processor(tmp_path: Path) -> None:
    found = describe_hardware(node_settings(tmp_path), [])
    assert (found.gpu, found.gpu_count, gpu_name([])) == ("cpu", 0, "cpu")
    assert found.vram_bytes > 0
    assert found.tflops == cpu_tflops() > 0
