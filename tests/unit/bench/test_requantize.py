"""A model in another quantization has the same shape, and weights that are as near as its bits allow."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from bench.requantize import (
    KINDS,
    Q4_1,
    _read_head,
    dequantize_q4_1,
    quantize_f16,
    quantize_q4_0,
    quantize_q8_0,
    requantize,
)

RNG = np.random.default_rng(1)


def q4_1(blocks: int) -> bytes:
    scales = RNG.uniform(0.001, 0.1, (blocks, 2)).astype(np.float16).view(np.uint8)
    return np.concatenate([scales, RNG.integers(0, 256, (blocks, 16), dtype=np.uint8)], axis=1).tobytes()


def test_weights_survive_in_the_other_types() -> None:
    weights = dequantize_q4_1(q4_1(50))
    assert weights.shape == (50, 32)
    halves = np.frombuffer(quantize_f16(weights), dtype=np.float16).reshape(weights.shape)
    np.testing.assert_allclose(halves, weights, rtol=1e-3)
    eight = np.frombuffer(quantize_q8_0(weights), dtype=np.uint8).reshape(50, 34)
    scale = eight[:, :2].copy().view(np.float16).astype(np.float32)
    np.testing.assert_allclose(eight[:, 2:].view(np.int8) * scale, weights, atol=float(scale.max()))
    four = np.frombuffer(quantize_q4_0(weights), dtype=np.uint8).reshape(50, 18)
    scale = four[:, :2].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([four[:, 2:] & 15, four[:, 2:] >> 4], axis=1).astype(np.float32) - 8
    np.testing.assert_allclose(nibbles * scale, weights, atol=float(np.abs(scale).max()) * 1.01)


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((2, 32), dtype=np.float32)
    assert not any(quantize_q8_0(zeros))
    scales = np.frombuffer(quantize_q4_0(zeros), dtype=np.uint8).reshape(2, 18)[:, :2].copy().view(np.float16)
    assert not scales.any()


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_keeps_its_names_and_its_other_tensors(tmp_path: Path, kind: str) -> None:
    weights, norm = q4_1(6), np.arange(5, dtype=np.float32).tobytes()
    values = string(b"a.list") + struct.pack("<IIQ2H", 9, 2, 2, 7, 8) + string(b"a.name") + struct.pack("<I", 8)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2) + values + string(b"model")
    infos = string(b"w") + struct.pack("<I2QIQ", 2, 64, 3, Q4_1, 0) + string(b"n") + struct.pack("<IQIQ", 1, 5, 0, 128)
    file = head + infos
    file += bytes(-len(file) % 32) + weights + bytes(-len(weights) % 32) + norm
    (tmp_path / "source").write_bytes(file)

    requantize(tmp_path / "source", tmp_path / "target", kind)

    with (tmp_path / "target").open("rb") as target:
        found, tensors = _read_head(target)
        base = -(-target.tell() // 32) * 32
        target.seek(base + tensors[1].offset)
        assert target.read(len(norm)) == norm
    assert found == head
    assert [(tensor.name, tensor.shape, tensor.kind) for tensor in tensors] == [
        (b"w", (64, 3), KINDS[kind][0]),
        (b"n", (5,), 0),
    ]
