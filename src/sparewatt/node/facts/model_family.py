"""What a model's name says: its architecture, by the family table; its size and its quantization. Pure.

A name is whatever a server calls the weights: a Hugging Face id, an Ollama tag, a path, the name of a GGUF file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sparewatt.node.facts.family_table import FAMILIES, Architecture

NAME_CHARS_MAX = 1024
NAMES_REMEMBERED_MAX = 256
SIZE_TOLERANCE = 0.1
"""Sizes in names are rounded: 6.7B and 7B are one model, 7B and 8B are two."""
SIZE_B_MAX = 10_000.0
BITS_DEFAULT = 16.0
_SEPARATORS = re.compile(r"[\s/\\:_@+,=]+|-{2,}")
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,5}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])")
_IN_BILLIONS = {"m": 1e-3, "b": 1.0, "t": 1e3}
_PATTERNS = tuple((re.compile(family.pattern), family.sizes) for family in FAMILIES)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    quantization: str
    bits: float
    """Per weight, with scales and what stays at 16 bits."""


_GGUF_BITS = {1: 2.0, 2: 3.2, 3: 3.9, 4: 4.8, 5: 5.7, 6: 6.6, 8: 8.5}
_GGUF = re.compile(r"(?<![a-z0-9])(i?q([1-68])(?:-(?:k|[01]|xxs|xs|s|m|nl)(?:-(?:xxs|xs|s|m|l|xl))?)?)(?![a-z0-9])")
_FORMATS: tuple[tuple[re.Pattern[str], WeightFormat], ...] = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"), WeightFormat(word, bits))
    for pattern, word, bits in (
        ("nvfp4", "nvfp4", 4.8),
        ("mxfp4", "mxfp4", 4.5),
        ("fp4", "fp4", 4.8),
        (r"int-?8|8-?bits?|w8a8|w8a16", "int8", 8.5),
        (r"awq|gptq|int-?4|w4a16|4-?bits?|bitsandbytes", "int4", 5.0),
        ("fp8", "fp8", 8.3),
        ("bf16|bfloat16", "bf16", 16.0),
        ("f16|fp16|float16|half", "fp16", 16.0),
        ("f32|fp32|float32", "fp32", 32.0),
    )
)


def normalised(name: str) -> str:
    """`meta-llama/Llama-3.1_8B` is `meta-llama-llama-3.1-8b`."""
    return _SEPARATORS.sub("-", name[:NAME_CHARS_MAX].lower())


@lru_cache(maxsize=NAMES_REMEMBERED_MAX)
def architecture_of(name: str) -> Architecture | None:
    """Of the family and the size in the name; a family with one size needs none."""
    text = normalised(name)
    size_b = _size_b(text)
    for pattern, sizes in _PATTERNS:
        if pattern.search(text) is None:
            continue
        if (found := _of_size(sizes, size_b)) is not None:
            return found
    return None


def _of_size(sizes: Sequence[Architecture], size_b: float | None) -> Architecture | None:
    if size_b is None:
        return sizes[0] if len(sizes) == 1 else None
    nearest = min(sizes, key=lambda each: abs(each.size_b / size_b - 1))
    return nearest if abs(nearest.size_b / size_b - 1) <= SIZE_TOLERANCE else None


@lru_cache(maxsize=NAMES_REMEMBERED_MAX)
def parameters_of(name: str) -> int | None:
    """By the size in the name (`13B`, `8x7B`, `270M`); None if there is none."""
    size_b = _size_b(normalised(name))
    return round(size_b * 1e9) if size_b is not None else None


@lru_cache(maxsize=NAMES_REMEMBERED_MAX)
def weight_format_of(name: str) -> WeightFormat | None:
    """From a model's name, or from a server's word such as `Q4_K_M`, `awq_marlin` or `fp8`."""
    text = normalised(name)
    if (gguf := _GGUF.search(text)) is not None:
        return WeightFormat(gguf[1].replace("-", "_"), _GGUF_BITS[int(gguf[2])])
    return next((found for pattern, found in _FORMATS if pattern.search(text)), None)


def _size_b(text: str) -> float | None:
    found = _SIZE.search(text)
    if found is None:
        return None
    size_b = int(found[1] or 1) * float(found[2]) * _IN_BILLIONS[found[3]]
    return size_b if 0 < size_b <= SIZE_B_MAX else None
