"""Benchmarks the GPU itself: a copy within its memory, and a dense matrix product at 16 bits.

Run as `python -m sparewatt.node.hardware.gpu_bench`: in its own process, so that a crash of the driver or a lack of
memory cannot hurt the agent. It needs torch or CuPy, which a node does not install; without them it says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

COPY_BYTES = 4 << 30
"""Each of two buffers: far beyond any cache."""
MATRIX = 8192
ROUNDS = 20
FREE_BYTES_MIN = 12 << 30
"""Needed for the full size; with less, the model server has the memory, and must not be squeezed."""
SHARE = 0.1
"""Of the free memory, for each buffer on a smaller card."""
BENCH_S = 120.0


class GpuSpeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of the first GPU, or why there are none."""

    by: str | None = None
    device: str | None = None
    copy_bytes_s: float | None = None
    """Bytes read plus bytes written."""
    fp16_tflops: float | None = None
    why_not: str | None = None


async def bench_in_subprocess(*, timeout_s: float = BENCH_S) -> GpuSpeed:
    """Raises nothing: a failure is in `why_not`."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError as error:
        return GpuSpeed(why_not=f"the measuring process could not be started ({error.strerror})")
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        return GpuSpeed(why_not=f"measuring the GPU took longer than {timeout_s:.0f} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return parse_result(output, returncode=process.returncode)


def parse_result(output: bytes, *, returncode: int | None) -> GpuSpeed:
    try:
        return msgspec.json.decode(output, type=GpuSpeed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return GpuSpeed(why_not=f"the measuring process ended with status {returncode} and said nothing")


def run_bench() -> GpuSpeed:
    """With torch or CuPy, whichever is installed."""
    for name, measure in (("torch", _by_torch), ("cupy", _by_cupy)):
        if importlib.util.find_spec(name) is None:
            continue
        try:
            return measure(importlib.import_module(name))
        except Exception as error:  # noqa: BLE001 (a process boundary: drivers raise anything)
            return GpuSpeed(by=name, why_not=f"{type(error).__name__}: {error}"[:300])
    return GpuSpeed(why_not="neither torch nor CuPy is installed here; speeds of models are measured all the same")


def _by_torch(torch: Any) -> GpuSpeed:
    if not torch.cuda.is_available():
        return GpuSpeed(by="torch", why_not="torch sees no GPU")
    free, _ = torch.cuda.mem_get_info(0)
    buffer_bytes, size = sizes(free)
    buffers = [torch.empty(buffer_bytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
    copy_s = _timed(lambda: buffers[0].copy_(buffers[1]), torch.cuda.synchronize)
    buffers.clear()
    a, b = (torch.randn(size, size, dtype=torch.float16, device="cuda") for _ in range(2))
    product_s = _timed(lambda: torch.matmul(a, b), torch.cuda.synchronize)
    device = str(torch.cuda.get_device_name(0))
    return _result("torch", device, buffer_bytes=buffer_bytes, copy_s=copy_s, size=size, product_s=product_s)


def _by_cupy(cupy: Any) -> GpuSpeed:
    free, _ = cupy.cuda.runtime.memGetInfo()
    wait = cupy.cuda.Device().synchronize
    buffer_bytes, size = sizes(free)
    buffers = [cupy.empty(buffer_bytes, dtype=cupy.uint8) for _ in range(2)]
    copy_s = _timed(lambda: cupy.copyto(buffers[0], buffers[1]), wait)
    buffers.clear()
    a, b = (cupy.random.standard_normal((size, size), dtype=cupy.float32).astype(cupy.float16) for _ in range(2))
    product_s = _timed(lambda: cupy.matmul(a, b), wait)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
    device = name.decode() if isinstance(name, bytes) else str(name)
    return _result("cupy", device, buffer_bytes=buffer_bytes, copy_s=copy_s, size=size, product_s=product_s)


def _result(by: str, device: str, *, buffer_bytes: int, copy_s: float, size: int, product_s: float) -> GpuSpeed:
    return GpuSpeed(
        by=by,
        device=device,
        copy_bytes_s=round(2 * buffer_bytes / copy_s),
        fp16_tflops=round(2 * size**3 / product_s / 1e12, 2),
    )


def sizes(free_bytes: int) -> tuple[int, int]:
    """Bytes of a buffer and width of a matrix; a small card keeps most of its memory. Raises MemoryError."""
    if free_bytes >= FREE_BYTES_MIN:
        return COPY_BYTES, MATRIX
    buffer_bytes = int(free_bytes * SHARE)
    if buffer_bytes < 256 << 20:
        raise MemoryError("less than 2.5 GB are free on the GPU: its model server has the memory")
    return buffer_bytes, MATRIX // 2


def _timed(work: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds of one round, after a warm-up."""
    for _ in range(3):
        work()
    wait()
    began_s = time.perf_counter()
    for _ in range(ROUNDS):
        work()
    wait()
    return max(1e-9, (time.perf_counter() - began_s) / ROUNDS)


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(run_bench())))  # noqa: T201 (its whole purpose)
