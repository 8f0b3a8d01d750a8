"""Weights of the wrong size do not get a model's name: the cheapest lie is a small file with a great name."""

from __future__ import annotations

import pytest

from sparewatt.policy.model_names.parser import ModelIdentity, identify
from sparewatt.policy.model_names.size_check import contradiction

GB = 10**9


@pytest.mark.parametrize(
    ("model_id", "quantization", "weights_bytes"),
    [
        ("llama-3.1-8b", "Q4_K_M", 4_920_000_000),
        ("llama-3.1-8b", "Q8_0", 8_540_000_000),
        ("llama-3.1-8b", "BF16", 16_070_000_000),
        ("llama-3.1-8b", "IQ2_XXS", 2_400_000_000),
        ("llama-3.1-8b", "awq", 5_740_000_000),
        ("llama-3.1-70b", "Q4_K_M", 42_500_000_000),
        ("llama-3.1-8b", None, 4_920_000_000),
        ("smollm2-135m", "Q4_1", 98_362_432),
        ("qwen2.5-0.5b", "awq", 731_000_000),
        ("gemma-3-1b", "Q2_K", 690_000_000),
        ("gpt-oss-20b", "MXFP4", 13_800_000_000),
        ("mixtral-8x7b-v0.1", "Q4_K_M", 26_400_000_000),
        ("llama-3.1-8b", "Q4_K_M", 0),  # the server does not report it
        ("deterministic", None, 5),
    ],
)
def test_real_files_pass(model_id: str, quantization: str | None, weights_bytes: int) -> None:
    assert contradiction(identify(model_id), weights_bytes=weights_bytes, quantization=quantization) is None


@pytest.mark.parametrize(
    ("model_id", "quantization", "weights_bytes"),
    [
        ("Llama-3.1-70B-Instruct", "Q4_K_M", 808_000_000),  # a file of 1B
        ("Llama-3.1-70B-Instruct", None, 808_000_000),
        ("Llama-3.1-8B-Instruct", "Q4_K_M", 2 * GB),  # a file of 3B
        ("llama-3.1-8b", "F16", 8 * GB),  # half of it
        ("llama-3.1-8b", "Q4_K_M", 42 * GB),  # and the other way round
        ("OurTune-70B.Q4_K_M.gguf", None, 5 * GB),
    ],
)
def test_weights_of_another_size_do_not(model_id: str, quantization: str | None, weights_bytes: int) -> None:
    why = contradiction(identify(model_id), weights_bytes=weights_bytes, quantization=quantization)
    assert why is not None
    assert f"{identify(model_id).name} has" in why


def test_the_reason_names_both_sizes() -> None:
    why = contradiction(ModelIdentity("m", None, 70.0), weights_bytes=600_000_000, quantization="q4_0")
    assert why == "0.6 GB of weights are about 1 billion parameters, and m has 70"
