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
_ALIASES = {
    "f16": "fp16",
    "half": "fp16",
    "f32": "fp32",
    "float16": "fp16",
    "float32": "fp32",
    "bfloat16": "bf16",
    "awq": "int4",
    "gptq": "int4",
    "fp8_e4m3": "fp8",
    "mxfp4_moe": "mxfp4",
}


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
