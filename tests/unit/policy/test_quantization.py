from __future__ import annotations

import pytest

from sparewatt.policy.quantization import quantization_of


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Q4_K_M", "int4"),
        ("IQ3_XS", "int3"),
        ("Q8_0", "int8"),
        ("q4", "int4"),
        ("w4a16", "int4"),
        ("F16", "fp16"),
        ("BF16", "bf16"),
        ("fp8", "fp8"),
        ("AWQ", "int4"),
        ("MXFP4", "mxfp4"),
        ("4bit", "int4"),
        ("8bit", "int8"),
        ("quark", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_quantization_is_known_or_unknown(name: str | None, word: str) -> None:
    assert quantization_of(name) == word
