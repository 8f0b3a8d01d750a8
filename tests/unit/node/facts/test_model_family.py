"""What a name says, in every spelling that servers use; and names that say nothing, or lie."""

from __future__ import annotations

import pytest

from sparewatt.node.facts.model_family import NAME_CHARS_MAX, architecture_of, parameters_of, weight_format_of


@pytest.mark.parametrize(
    ("name", "parameters_b", "kv_bytes"),
    [
        # Hugging Face ids
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03, 131_072),
        ("meta-llama/Meta-Llama-3-70B", 70.55, 327_680),
        ("meta-llama/Llama-3.2-1B", 1.236, 32_768),
        ("NousResearch/Hermes-3-Llama-3.1-8B", 8.03, 131_072),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct", 1.544, 28_672),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", 72.71, 327_680),
        ("Qwen/QwQ-32B", 32.76, 262_144),
        ("Qwen/Qwen3-8B", 8.19, 147_456),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 30.53, 98_304),
        ("Qwen/Qwen3-235B-A22B", 235.1, 192_512),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7.248, 131_072),
        ("mistralai/Mistral-Nemo-Instruct-2407", 12.25, 163_840),
        ("mistralai/Mistral-Small-24B-Instruct-2501", 23.57, 163_840),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7, 131_072),
        ("google/gemma-2b", 2.506, 18_432),
        ("google/gemma-2-2b-it", 2.614, 106_496),
        ("microsoft/Phi-3.5-mini-instruct", 3.82, 393_216),
        ("microsoft/phi-4", 14.66, 204_800),
        ("microsoft/Phi-4-mini-instruct", 3.84, 131_072),
        ("deepseek-ai/DeepSeek-R1", 671.0, 70_272),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8.03, 131_072),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 32.76, 262_144),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 8.19, 147_456),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.1345, 23_040),
        # Ollama tags
        ("llama3.2:3b-instruct-q4_K_M", 3.213, 114_688),
        ("qwen2.5-coder:7b", 7.616, 57_344),
        ("deepseek-r1:14b", 14.77, 196_608),
        ("phi3:14b", 13.96, 204_800),
        # files and paths
        ("SmolLM2-135M-Instruct.Q4_1", 0.1345, 23_040),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", 8.03, 131_072),
        (
            "/cache/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a35458c702b33eeacc393d103063234e8bc28",
            7.616,
            57_344,
        ),
    ],
)
def test_a_known_model_has_its_architecture(name: str, parameters_b: float, kv_bytes: int) -> None:
    found = architecture_of(name)
    assert found is not None
    assert (found.parameters_b, found.kv_bytes(16)) == (parameters_b, kv_bytes)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpt-4",
        "a-model",
        "llama3:latest",  # several sizes, and no size
        "llama-3-49b",  # no such size
        "qwen3.5-8b",  # a later family may have another shape
        "llama-30b",
        "gemma-3n-e4b",
        "my-8b",
        "/snapshots/8b8b8b8b",
    ],
)
def test_a_name_that_does_not_say_enough_has_no_architecture(name: str) -> None:
    assert architecture_of(name) is None


def test_a_mixture_of_experts_uses_a_part_of_its_parameters() -> None:
    found = architecture_of("openai/gpt-oss-120b")
    assert found is not None
    assert (found.parameters, found.active_parameters) == (116_800_000_000, 5_100_000_000)


def test_layers_with_a_window_count_by_their_share() -> None:
    """Gemma 3 27B: 10 of 62 layers see everything, the others 1,024 tokens of the 4,096 that are counted."""
    found = architecture_of("google/gemma-3-27b-it")
    assert found is not None
    assert found.layers == 10 + 52 / 4
    assert found.kv_bytes(16) == 23 * 2 * 16 * 128 * 2


def test_a_cache_with_8_bits_takes_half() -> None:
    found = architecture_of("Qwen/Qwen3-8B")
    assert found is not None
    assert found.kv_bytes(8) * 2 == found.kv_bytes(16)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("someone/new-model-13B-chat", 13 * 10**9),
        ("another-8x7b", 56 * 10**9),
        ("tiny.270m", None),  # a dot before a number belongs to the number before it
        ("tiny-270m", 270 * 10**6),
        ("huge-1.5T", 1500 * 10**9),
        ("quantized-4bit", None),
        ("model-0b", None),
        ("model-99999b", None),
        ("x" * 10 * NAME_CHARS_MAX + "-7b", None),
    ],
)
def test_an_unknown_model_has_the_size_in_its_name(name: str, parameters: int | None) -> None:
    assert parameters_of(name) == parameters


@pytest.mark.parametrize(
    ("name", "quantization", "bits"),
    [
        ("Llama-3.1-8B-Instruct-Q4_K_M.gguf", "q4_k_m", 4.8),
        ("Q8_0", "q8_0", 8.5),
        ("IQ4_XS", "iq4_xs", 4.8),
        ("llama3.2:3b-instruct-q4_K_M", "q4_k_m", 4.8),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "int4", 5.0),
        ("awq_marlin", "int4", 5.0),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "int4", 5.0),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "int8", 8.5),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "int8", 8.5),
        ("Qwen/Qwen3-30B-A3B-FP8", "fp8", 8.3),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "nvfp4", 4.8),
        ("mlx-community/Qwen3-8B-4bit", "int4", 5.0),
        ("F16", "fp16", 16.0),
        ("BF16", "bf16", 16.0),
    ],
)
def test_a_quantization_is_read_from_a_name_or_a_word(name: str, quantization: str, bits: float) -> None:
    found = weight_format_of(name)
    assert found is not None
    assert (found.quantization, found.bits) == (quantization, bits)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "", "compressed-tensors", "q9", "fp"])
def test_a_name_without_a_quantization_has_none(name: str) -> None:
    assert weight_format_of(name) is None
