"""Other quantizations of a GGUF file of Q4_1 weights: the same model as F16, Q8_0 or Q4_0, and a weaker one.

What is lost in Q4_1 stays lost; but the rounding differs, so each file writes other answers. Names, vocabulary and
chat template are copied.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

ALIGNMENT = 32
BLOCK = 32
Q4_1 = 3
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SIZES = {0: (1, 4), 1: (1, 2), 2: (BLOCK, 18), Q4_1: (BLOCK, 20), 8: (BLOCK, 34)}
"""Weights and bytes of a block, by the type's number in GGUF."""
Floats = npt.NDArray[np.float32]


class _Tensor(NamedTuple):
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def n_bytes(self) -> int:
        weights, n_bytes = _SIZES[self.kind]
        return math.prod(self.shape) // weights * n_bytes


def dequantize_q4_1(data: bytes) -> Floats:
    """Blocks of 32: scale and minimum in 16 bits, then a nibble for each weight, the low ones first."""
    blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, 20)
    scales = blocks[:, :4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return nibbles * scales[:, :1] + scales[:, 1:]


def quantize_f16(weights: Floats) -> bytes:
    return weights.astype(np.float16).tobytes()


def quantize_q8_0(weights: Floats) -> bytes:
    scale = np.abs(weights).max(axis=1, keepdims=True) / 127
    rounded = np.rint(weights / np.where(scale == 0, 1, scale)).astype(np.int8)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), rounded.view(np.uint8)], axis=1).tobytes()


def quantize_q4_0(weights: Floats) -> bytes:
    """The weight that is farthest from zero becomes -8."""
    rows = np.arange(len(weights))
    scale = (weights[rows, np.abs(weights).argmax(axis=1)] / -8)[:, None]
    rounded = np.clip(np.floor(weights / np.where(scale == 0, 1, scale) + 8.5), 0, 15).astype(np.uint8)
    nibbles = rounded[:, :16] | (rounded[:, 16:] << 4)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), nibbles], axis=1).tobytes()


def quantize_weak(weights: Floats) -> bytes:
    """As Q4_0 with one bit less of each weight: another, weaker model of the same size."""
    scale = np.abs(weights).max(axis=1, keepdims=True) / 4
    coarse = np.rint(weights / np.where(scale == 0, 1, scale)) * scale
    return quantize_q4_0(coarse.astype(np.float32))


KINDS: dict[str, tuple[int, Callable[[Floats], bytes]]] = {
    "F16": (1, quantize_f16),
    "Q4_0": (2, quantize_q4_0),
    "Q8_0": (8, quantize_q8_0),
}
WEAK = "weak"
_KINDS = KINDS | {WEAK: (2, quantize_weak)}


def requantize(source: Path, target: Path, kind: str) -> None:
    """Write `source` with its Q4_1 tensors in another type; the others are copied."""
    number, quantize = _KINDS[kind]
    with source.open("rb") as file:
        head, tensors = _read_head(file)
        base = _aligned(file.tell())
        datas = []
        for tensor in tensors:
            file.seek(base + tensor.offset)
            data = file.read(tensor.n_bytes)
            datas.append(quantize(dequantize_q4_1(data)) if tensor.kind == Q4_1 else data)
    with target.open("wb") as file:
        file.write(head)
        at = 0
        for tensor, data in zip(tensors, datas, strict=True):
            _write_info(file, tensor._replace(kind=number if tensor.kind == Q4_1 else tensor.kind, offset=at))
            at += _aligned(len(data))
        for data in [b"", *datas]:
            file.write(data)
            file.write(bytes(_aligned(file.tell()) - file.tell()))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _read_head(file: BinaryIO) -> tuple[bytes, list[_Tensor]]:
    """Everything before the tensors' descriptions, and these."""
    _, _, n_tensors, n_values = _read(file, "4sIQQ")
    for _ in range(n_values):
        _read_string(file)
        _skip_value(file, _read(file, "I")[0])
    end = file.tell()
    tensors = []
    for _ in range(n_tensors):
        name = _read_string(file)
        shape = _read(file, f"{_read(file, 'I')[0]}Q")
        tensors.append(_Tensor(name, shape, *_read(file, "IQ")))
    after = file.tell()
    file.seek(0)
    head = file.read(end)
    file.seek(after)
    return head, tensors


def _read(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _read_string(file: BinaryIO) -> bytes:
    return file.read(_read(file, "Q")[0])


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _read_string(file)
    elif kind == _ARRAY:
        item, count = _read(file, "IQ")
        for _ in range(count):
            _skip_value(file, item)
    else:
        _read(file, _SCALARS[kind])


def _write_info(file: BinaryIO, tensor: _Tensor) -> None:
    file.write(struct.pack("<Q", len(tensor.name)) + tensor.name)
    file.write(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape))
    file.write(struct.pack("<IQ", tensor.kind, tensor.offset))
