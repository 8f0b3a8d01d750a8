"""The KV cache of a token by what `/api/show` says of the model, after Ollama's source (August 2026)."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.ollama import OllamaBackend
from tests.unit.node.backends.pages import Pages, adapter_over

GEMMA = {
    "general.architecture": "gemma3",
    "general.parameter_count": 4_299_915_632,
    "gemma3.block_count": 34,
    "gemma3.embedding_length": 2560,
    "gemma3.attention.head_count": 8,
    "gemma3.attention.head_count_kv": 4,
    "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256,
    "gemma3.context_length": 131_072,
}


def server(**facts: Any) -> Pages:
    tag = {"name": "gemma3:4b", "size": 3_338_801_804, "digest": "a2af6cc3eb7f"}
    return {
        "/api/tags": {"models": [tag | {"details": {"quantization_level": "Q4_K_M"}}]},
        "/api/ps": {"models": [tag | {"context_length": 8192, "size_vram": 5 * 10**9}]},
        "/api/show": {"model_info": GEMMA | facts, "capabilities": ["completion"]},
    }


async def test_a_head_is_as_long_as_its_keys_and_values() -> None:
    async with adapter_over(OllamaBackend, server()) as adapter:
        (model,) = await adapter.models()

    assert model.kv_bytes_per_token == 2 * 34 * 4 * (256 + 256)
    assert (model.context_length, model.parameters) == (8192, 4_299_915_632)


async def test_without_their_length_it_is_a_part_of_the_models_width() -> None:
    lengths = {"gemma3.attention.key_length": None, "gemma3.attention.value_length": None}
    async with adapter_over(OllamaBackend, server(**lengths)) as adapter:
        (model,) = await adapter.models()

    assert model.kv_bytes_per_token == 2 * 34 * 4 * 2 * (2560 // 8)


async def test_how_many_requests_it_runs_at_once_is_not_told() -> None:
    async with adapter_over(OllamaBackend, server()) as adapter:
        await adapter.models()
        assert (await adapter.slots(), await adapter.load()) == (None, None)


@pytest.mark.parametrize(
    "lie",
    [
        {"gemma3.block_count": -34},
        {"gemma3.block_count": 10**12},
        {"gemma3.attention.head_count_kv": [4, 4, 0]},  # one for each layer: not a single figure
        {"gemma3.attention.head_count_kv": True},
        {"general.architecture": "another"},
    ],
    ids=str,
)
async def test_a_shape_that_makes_no_sense_is_unknown(lie: dict[str, Any]) -> None:
    async with adapter_over(OllamaBackend, server(**lie)) as adapter:
        (model,) = await adapter.models()

    assert model.kv_bytes_per_token == 0
