from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.node.hardware.amd import AmdProbe, card_names
from sparewatt.protocol.link.node_report import GpuReading


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
