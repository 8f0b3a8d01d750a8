"""Quantization formats: the vocabulary's words, and the names that model servers use for them."""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX

QUANTIZATIONS = (
    "int2 int3 int4 int5 int6 int8 fp4 mxfp4 nvfp4 fp6 fp8 fp16 bf16 fp32 unknown".split()  # noqa: SIM905 - reads as one line
)
UNKNOWN = "unknown"

_INTEGER = re.compile(r"(?:i?q|int|w)(?P<bits>[2-68])(?:[_-].*|a\d+)?")
_NAMES = {
    "fp16": "f16 half float16",
    "fp32": "f32 float32",
    "bf16": "bfloat16",
    "int3": "3bit",
    "int4": "awq gptq 4bit",
    "int5": "5bit",
    "int6": "6bit",
    "int8": "8bit",
    "fp8": "fp8_e4m3",
    "mxfp4": "mxfp4_moe",
}
_ALIASES = {name: word for word, names in _NAMES.items() for name in names.split()}


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def quantization_of(name: str | None) -> str:
    """`Q4_K_M` is int4, `F16` is fp16. Any other name is `unknown`, which satisfies only a condition on `unknown`."""
    lowered = (name or "").strip().lower()
    if lowered in QUANTIZATIONS:
        return lowered
    integer = _INTEGER.fullmatch(lowered)
    if integer:
        return f"int{integer['bits']}"
    return _ALIASES.get(lowered, UNKNOWN)
