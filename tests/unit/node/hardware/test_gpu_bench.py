from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sparewatt.node.hardware import gpu_bench
from sparewatt.node.hardware.gpu_bench import (
    FREE_BYTES_MIN,
    GpuSpeed,
    bench_in_subprocess,
    parse_result,
    run_bench,
    sizes,
)


class Torch:
    """As much of torch as the benchmark uses; its clock stands still, so only the calls are tested."""

    uint8 = float16 = None

    def __init__(self, *, has_gpu: bool = True, free: int = FREE_BYTES_MIN) -> None:
        self.cuda = SimpleNamespace(
            is_available=lambda: has_gpu,
            mem_get_info=lambda _: (free, free),
            synchronize=lambda: None,
            get_device_name=lambda _: "NVIDIA H200",
        )

    def empty(self, size: int, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(copy_=lambda _source: None)

    def randn(self, *_: Any, **__: Any) -> float:
        return 1.0

    def matmul(self, a: float, b: float) -> float:
        return a * b


def install(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "torch" or None)


def test_copy_and_product_are_measured_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    speed = run_bench()
    assert (speed.by, speed.device, speed.why_not) == ("torch", "NVIDIA H200", None)
    assert speed.copy_bytes_s
    assert speed.fp16_tflops


def test_torch_without_a_gpu_is_reported_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(has_gpu=False))
    assert run_bench() == GpuSpeed(by="torch", why_not="torch sees no GPU")


def test_a_card_without_free_memory_is_not_benchmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(free=1 << 30))
    speed = run_bench()
    assert speed.copy_bytes_s is None
    assert "MemoryError" in (speed.why_not or "")


def test_without_torch_and_cupy_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "neither torch nor CuPy" in (run_bench().why_not or "")


def test_small_cards_get_small_buffers() -> None:
    assert sizes(FREE_BYTES_MIN) == (gpu_bench.COPY_BYTES, gpu_bench.MATRIX)
    assert sizes(8 << 30) == (int((8 << 30) * 0.1), gpu_bench.MATRIX // 2)


async def test_the_benchmark_runs_in_its_own_process() -> None:
    assert isinstance(await bench_in_subprocess(), GpuSpeed)


@pytest.mark.parametrize("output", [b"", b"Segmentation fault", b"[1]", b"\xff"])
def test_a_crashed_benchmark_is_reported_in_words(output: bytes) -> None:
    assert "status -11" in (parse_result(output, returncode=-11).why_not or "")


async def test_a_benchmark_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = await bench_in_subprocess(timeout_s=0.0)
    assert "longer than" in (speed.why_not or "")
