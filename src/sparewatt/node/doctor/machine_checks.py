"""This machine: graphics driver, memory, disk, the node's own files, and the agent that may run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from sparewatt.node.doctor.check import DoctorCheck, failure, ok, warning
from sparewatt.node.hardware.gpu import GB, DetectedGpu, SensorReading
from sparewatt.node.identity import KEY_FILE
from sparewatt.node.owner.control_socket import NodeNotRunning, ask
from sparewatt.protocol.signing import SigningKey

PCI = Path("/sys/bus/pci/devices")
NVIDIA_PCI, DISPLAY_CLASS = "0x10de", "0x03"
MEMORY_BYTES_MIN = 2 * GB
DISK_BYTES_MIN = GB
HOT_C = 87.0
"""Where cards begin to slow themselves down."""


def check_gpus(gpus: Sequence[DetectedGpu], readings: Sequence[SensorReading], *, pci: Path = PCI) -> list[DoctorCheck]:
    if not gpus:
        if _has_nvidia_card(pci):
            found = "there is an NVIDIA card in this machine, but its driver does not answer"
            advice = (
                "Install NVIDIA's driver, or start the machine again after an update. 'nvidia-smi' must list the card."
            )
            return [failure("GPU", found, advice)]
        return [warning("GPU", "none was found; the processor does the work", "Fine for small models.")]
    return [
        check
        for gpu, reading in zip(gpus, (*readings, *[SensorReading()] * len(gpus)), strict=False)
        for check in _check_gpu(gpu, reading)
    ]


def _check_gpu(gpu: DetectedGpu, reading: SensorReading) -> list[DoctorCheck]:
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    checks = [ok("GPU", f"{gpu.model}, {gpu.vram_bytes / GB:.1f} GB{driver}{_now(reading)}")]
    if reading.temperature_c is not None and reading.temperature_c >= HOT_C:
        found = f"{gpu.model} is at {reading.temperature_c:.0f} °C and slows itself down"
        advice = "Clean its fans, or set a ceiling: sparewatt node schedule --max-temperature 80."
        checks.append(warning("temperature", found, advice))
    return checks


def _now(reading: SensorReading) -> str:
    told = (
        (reading.vram_free_bytes, 1 / GB, "{:.1f} GB free"),
        (reading.power_watts, 1, "{:.0f} W"),
        (reading.temperature_c, 1, "{:.0f} °C"),
        (reading.utilisation, 1, "{:.0%} busy"),
    )
    words = [text.format(value * scale) for value, scale, text in told if value is not None]
    return f"; now {', '.join(words)}" if words else ""


def _has_nvidia_card(pci: Path) -> bool:
    for device in pci.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == NVIDIA_PCI and kind.startswith(DISPLAY_CLASS):
            return True
    return False


def check_memory(available_bytes: int | None = None) -> DoctorCheck:
    free = int(psutil.virtual_memory().available) if available_bytes is None else available_bytes
    if free < MEMORY_BYTES_MIN:
        return warning(
            "memory", f"only {free / GB:.1f} GB are free", "Close what you do not need, or use a smaller model."
        )
    return ok("memory", f"{free / GB:.1f} GB are free")


def check_disk(data_dir: Path, *, free_bytes: int | None = None) -> DoctorCheck:
    place = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free if free_bytes is None else free_bytes
    if free < DISK_BYTES_MIN:
        return failure(
            "disk", f"only {free / GB:.2f} GB are free at {place}", "Make room: receipts and logs need some."
        )
    return ok("disk", f"{free / GB:.0f} GB are free at {place}")


def check_key(data_dir: Path) -> DoctorCheck:
    path = data_dir / KEY_FILE
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            return failure("key", f"{path} can be read by others", f"Run: chmod 600 {path}")
        address = SigningKey.read(path).address
    except FileNotFoundError:
        return warning(
            "key", "no node has joined from this directory yet", "The first join makes one, and needs a token."
        )
    except PermissionError:
        return failure("key", f"{path} belongs to another user", "Run this as the user that the node runs as.")
    except (OSError, ValueError):
        return failure("key", f"{path} holds no key", "Restore it from a backup, or delete it to join as a new node.")
    return ok("key", f"this node is {address}")


def check_agent(data_dir: Path) -> tuple[list[DoctorCheck], dict[str, Any] | None]:
    """And its own account of itself, if it runs."""
    try:
        status = ask(data_dir, {"do": "status"}).get("status")
    except NodeNotRunning:
        return [warning("agent", "no agent runs here", "Start it: sparewatt node join URL --token T")], None
    if not isinstance(status, dict):
        return [failure("agent", "the agent here does not understand this command", "Start it again.")], None
    return [*_check_status(status)], status


def _check_status(status: dict[str, Any]) -> list[DoctorCheck]:
    checks = [_check_link(status)]
    server = status.get("server") or {}
    if server.get("trouble"):
        advice = "Start the model server again; the node comes back by itself."
        checks.append(failure("fronted server", f"{server.get('kind')}: {server['trouble']}", advice))
    if status.get("paused"):
        checks.append(
            warning("pause", f"it takes no jobs: {status['paused']}", "sparewatt node resume, or change the schedule.")
        )
    models = status.get("models") or []
    if not server.get("trouble") and not models:
        checks.append(failure("models", "the model server has no model", "Load one there, e.g. ollama pull llama3.2."))
    unmeasured = [model["id"] for model in models if not model.get("measured") and model.get("state") == "warm"]
    if unmeasured:
        found = f"not measured yet: {', '.join(unmeasured)[:200]}"
        checks.append(
            warning("models", found, "A model gets jobs once it is measured; wait a minute, then see the log.")
        )
    return checks


def _check_link(status: dict[str, Any]) -> DoctorCheck:
    if status.get("joined_at") is None:
        why = status.get("last_trouble") or "it has not joined yet"
        advice = "It keeps dialling by itself; the gateway's checks below say what is in the way."
        return failure("agent", f"it runs, but has no link to {status.get('gateway')} ({why})", advice)
    return ok("agent", f"it runs, version {status.get('version')}, joined to {status.get('gateway')}")
