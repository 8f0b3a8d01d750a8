"""Measuring the GPU itself, once for each card and driver; what was measured is kept on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from sparewatt.core.log import Logger
from sparewatt.node.hardware.gpu_bench import GpuSpeed, bench_in_subprocess
from sparewatt.node.specs.inventory import Inventory

_log = Logger("sparewatt.node")
FILE = "gpu.json"


async def measure_gpu(
    inventory: Inventory,
    data_dir: Path,
    *,
    tell: Callable[[str], None],
    bench: Callable[[], Awaitable[GpuSpeed]] = bench_in_subprocess,
) -> None:
    """Nothing on a machine without a GPU."""
    gpus = inventory.specs.gpus
    if not gpus or not inventory.settings.bench_gpu:
        return
    card = f"{gpus[0].model}|{gpus[0].driver}"
    kept = _read(data_dir / FILE)
    if card in kept:
        inventory.note_gpu_speed(kept[card])
        return
    tell(f"measuring {gpus[0].model} …")
    async with inventory.measurement_lock:
        speed = await bench()
    if speed.copy_bytes_s is None or speed.fp16_tflops is None:
        tell(f"{gpus[0].model} itself is not measured: {speed.why_not}")
        return
    tell(f"measured {gpus[0].model}: copies {speed.copy_bytes_s / 1e12:.2f} TB/s, {speed.fp16_tflops:.0f} TFLOP/s")
    inventory.note_gpu_speed(speed)
    try:
        (data_dir / FILE).write_bytes(msgspec.json.encode({card: speed}))
    except OSError as error:
        _log.warning("gpu_measure_not_kept", why=str(error))


def _read(path: Path) -> dict[str, GpuSpeed]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, GpuSpeed])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
