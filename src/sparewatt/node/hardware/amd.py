"""AMD's GPUs, read from the files of the Linux kernel's driver: needs no library, which could crash the agent.

`amdsmi` is not imported: without ROCm its import alone raises and prints. `rocm-smi`, where it is installed, is run
once, for the names of cards that the kernel does not know.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from sparewatt.node.hardware.gpu import DetectedGpu, run_program
from sparewatt.protocol.link.node_report import GpuReading

DRM = Path("/sys/class/drm")
DRIVER_VERSION = Path("/sys/module/amdgpu/version")
VENDOR_ID = "0x1002"
VRAM_BYTES_MIN = 1 << 30
"""Integrated graphics reserve less than this; they are no GPU to rent."""


class AmdProbe:
    def __init__(self, *, root: Path = DRM, run_smi: Callable[[], str] | None = None) -> None:
        self._cards = [path / "device" for path in sorted(root.glob("card*")) if _is_amd_gpu(path)]
        self._run_smi = run_smi or _run_rocm_smi

    def gpus(self) -> list[DetectedGpu]:
        if not self._cards:
            return []
        names = card_names(self._run_smi())
        return [
            DetectedGpu(
                vendor="amd",
                model=_text(card / "product_name") or names.get(index) or f"AMD GPU {_text(card / 'device')}",
                vram_bytes=_number(card / "mem_info_vram_total") or 0,
                driver=_text(DRIVER_VERSION),
            )
            for index, card in enumerate(self._cards)
        ]

    def read(self) -> list[GpuReading]:
        return [_read(card) for card in self._cards]


def _is_amd_gpu(path: Path) -> bool:
    """`card0` but not `card0-HDMI-A-1`, by AMD, and with its own memory."""
    if not re.fullmatch(r"card\d+", path.name) or _text(path / "device" / "vendor") != VENDOR_ID:
        return False
    return (_number(path / "device" / "mem_info_vram_total") or 0) >= VRAM_BYTES_MIN


def _read(card: Path) -> GpuReading:
    total, used = _number(card / "mem_info_vram_total"), _number(card / "mem_info_vram_used")
    busy = _number(card / "gpu_busy_percent")
    sensors = next(iter(sorted((card / "hwmon").glob("hwmon*"))), None)
    microwatts = _first_number(sensors, ("power1_average", "power1_input"))
    millidegrees = _first_number(sensors, ("temp1_input",))
    return GpuReading(
        vram_free_bytes=max(0, total - used) if total is not None and used is not None else None,
        power_watts=None if microwatts is None else min(1e5, microwatts / 1e6),
        temperature_c=None if millidegrees is None else min(300.0, millidegrees / 1e3),
        utilisation=None if busy is None else min(1.0, busy / 100),
    )


def _run_rocm_smi() -> str:
    program = shutil.which("rocm-smi")
    return run_program([program, "--showproductname", "--json"]) if program is not None else ""


def card_names(smi_output: str) -> dict[int, str]:
    """By number of the card, from the output of rocm-smi; empty if that makes no sense."""
    try:
        cards = json.loads(smi_output)
    except ValueError:
        return {}
    names: dict[int, str] = {}
    for card, facts in cards.items() if isinstance(cards, dict) else ():
        number = re.fullmatch(r"card(\d+)", card)
        name = facts.get("Card Series") or facts.get("Card series") if isinstance(facts, dict) else None
        if number and isinstance(name, str) and name:
            names[int(number[1])] = name
    return names


def _first_number(folder: Path | None, names: tuple[str, ...]) -> int | None:
    found = [_number(folder / name) for name in names] if folder is not None else []
    return next((value for value in found if value is not None), None)


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()[:100] or None
    except OSError:
        return None
