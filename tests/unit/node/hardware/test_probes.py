from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparewatt.node.hardware.amd import AmdProbe, card_names
from sparewatt.node.hardware.apple import GPU_SHARE, PROFILER, SYSCTL_MEMORY, AppleProbe, chip_of
from sparewatt.node.hardware.cpu import CpuPower, cpu_tflops
from sparewatt.node.hardware.detection import HostGpuProbe, describe_hardware, gpu_name
from sparewatt.node.hardware.gpu import GB, DetectedGpu
from sparewatt.node.hardware.nvidia import NvidiaProbe
from sparewatt.protocol.link.node_report import GpuReading
from tests.contract.nvml import RecordedNvml
from tests.unit.node.rig import node_settings

# NVIDIA


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


# AMD


def amd_card(root: Path, number: int, **files: str) -> None:
    card = root / f"card{number}" / "device"
    (card / "hwmon" / "hwmon3").mkdir(parents=True)
    given = {
        "vendor": "0x1002",
        "device": "0x744c",
        "mem_info_vram_total": "25753026560",
        "mem_info_vram_used": "1048576",
        "gpu_busy_percent": "12",
        "hwmon/hwmon3/power1_average": "87000000",
        "hwmon/hwmon3/temp1_input": "46000",
    }
    for name, text in (given | files).items():
        if text:
            (card / name).write_text(text + "\n")


def test_an_amd_card_is_read_from_the_kernels_files(tmp_path: Path) -> None:
    amd_card(tmp_path, 0)
    (tmp_path / "card0-HDMI-A-1").mkdir()
    probe = AmdProbe(root=tmp_path, run_smi=lambda: json.dumps({"card0": {"Card Series": "Radeon RX 7900 XTX"}}))
    (gpu,) = probe.gpus()
    assert (gpu.vendor, gpu.model, gpu.vram_bytes) == ("amd", "Radeon RX 7900 XTX", 25753026560)
    assert probe.read() == [GpuReading(25753026560 - 1048576, 87.0, 46.0, 0.12)]


@pytest.mark.parametrize(
    "files", [{"vendor": "0x8086"}, {"mem_info_vram_total": "536870912"}, {"mem_info_vram_total": "many"}]
)
def test_another_vendors_card_and_a_processors_own_graphics_are_no_gpu(tmp_path: Path, files: dict[str, str]) -> None:
    amd_card(tmp_path, 0, **files)
    assert AmdProbe(root=tmp_path, run_smi=lambda: "").gpus() == []


def test_files_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    amd_card(tmp_path, 0, mem_info_vram_used="", gpu_busy_percent="x", **{"hwmon/hwmon3/power1_average": ""})
    probe = AmdProbe(root=tmp_path, run_smi=lambda: "no JSON")
    assert probe.gpus()[0].model == "AMD GPU 0x744c"
    assert probe.read() == [GpuReading(None, None, 46.0, None)]


@pytest.mark.parametrize("output", ["", "[]", "{", '{"card0": 1, "system": {}}', '{"card0": {"Card Series": 7}}'])
def test_nonsense_from_rocm_smi_names_no_card(output: str) -> None:
    assert card_names(output) == {}


# Apple

PROFILE = {
    "SPDisplaysDataType": [
        {"_name": "Apple M3 Max", "sppci_model": "Apple M3 Max", "sppci_cores": "40", "sppci_bus": "spdisplays_builtin"}
    ]
}


def test_a_mac_shares_its_memory() -> None:
    answers: dict[tuple[str, ...], str] = {PROFILER: json.dumps(PROFILE), SYSCTL_MEMORY: "68719476736\n"}
    probe = AppleProbe(run=lambda argv: answers.get(tuple(argv), "15.1\n"), is_mac=True)
    (gpu,) = probe.gpus()
    assert gpu == DetectedGpu("apple", "Apple M3 Max (40 cores)", int(68719476736 * GPU_SHARE), "macOS 15.1")
    assert len(probe.read()) == 1


def test_on_a_machine_that_is_no_mac_nothing_is_run() -> None:
    def run(_: Any) -> str:
        raise AssertionError("asked")

    assert AppleProbe(run=run, is_mac=False).gpus() == []


@pytest.mark.parametrize("profile", ["", "{}", '{"SPDisplaysDataType": [{"sppci_model": "Intel Iris"}]}', "[1]"])
def test_a_mac_without_an_apple_chip_has_no_gpu(profile: str) -> None:
    assert chip_of(profile) is None


# the processor


def test_power_of_the_processor_is_the_counters_difference(tmp_path: Path) -> None:
    now = [10.0]
    for number, joules in ((0, 1_000_000), (1, 5_000_000)):
        (tmp_path / f"intel-rapl:{number}").mkdir()
        (tmp_path / f"intel-rapl:{number}" / "energy_uj").write_text(str(joules))
    (tmp_path / "intel-rapl:0:0").mkdir()
    (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text("999")
    cpu = CpuPower(now_s=lambda: now[0], root=tmp_path)
    assert cpu.watts() is None
    now[0] = 12.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("61000000")
    assert cpu.watts() == 30.0
    now[0] = 13.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("0")  # the counter began anew
    assert cpu.watts() is None


def test_unreadable_power_counters_mean_unknown_power(tmp_path: Path) -> None:
    assert CpuPower(now_s=lambda: 0.0, root=tmp_path / "none").watts() is None


# all of it


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


def test_a_machine_without_a_gpu_is_a_cpu(tmp_path: Path) -> None:
    found = describe_hardware(node_settings(tmp_path), [])
    assert (found.gpu, found.gpu_count, gpu_name([])) == ("cpu", 0, "cpu")
    assert found.vram_bytes > 0


def test_settings_override_a_machine_without_a_gpu(tmp_path: Path) -> None:
    found = describe_hardware(node_settings(tmp_path, gpu="RTX 4090", vram_gb=24.0, tflops=82.6), [])
    assert (found.gpu, found.gpu_count, found.vram_bytes, found.tflops) == ("RTX 4090", 1, 24 * GB, 82.6)


def test_without_settings_a_machine_without_a_gpu_reports_its_processor(tmp_path: Path) -> None:
    found = describe_hardware(node_settings(tmp_path), [])
    assert (found.gpu, found.gpu_count) == ("cpu", 0)
    assert found.vram_bytes > 0
    assert found.tflops == cpu_tflops() > 0
