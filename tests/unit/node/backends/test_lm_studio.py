"""How many requests LM Studio runs at once, after its documentation (0.4)."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.lm_studio import LmStudioBackend, parameters_of
from tests.unit.node.backends.pages import Pages, adapter_over


def server(*parallel: int | None) -> Pages:
    def instance(number: int, slots: int | None) -> dict[str, Any]:
        config = {"context_length": 8192} | ({"parallel": slots} if slots is not None else {})
        return {"id": f"gemma-3-12b:{number}", "config": config}

    model = {
        "type": "llm",
        "key": "google/gemma-3-12b",
        "loaded_instances": [instance(number, slots) for number, slots in enumerate(parallel)],
        "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
        "size_bytes": 8_148_960_000,
        "params_string": "12B",
        "max_context_length": 131_072,
    }
    return {"/api/v1/models": {"models": [model]}}


@pytest.mark.parametrize(("parallel", "slots"), [((4,), 4), ((8, 2), 2), ((None,), None), ((), None)])
async def test_the_fewest_of_its_loaded_models_count(parallel: tuple[int | None, ...], slots: int | None) -> None:
    async with adapter_over(LmStudioBackend, server(*parallel)) as adapter:
        await adapter.models()
        assert await adapter.slots() == slots


async def test_an_instance_is_known_by_the_key_of_its_weights() -> None:
    async with adapter_over(LmStudioBackend, server(4)) as adapter:
        (model,) = await adapter.models()

    assert (model.id, model.weights_name) == ("gemma-3-12b:0", "google/gemma-3-12b")
    assert (model.weights_bytes, model.kv_bytes_per_token, model.parameters) == (8_148_960_000, 0, 12 * 10**9)


@pytest.mark.parametrize("text", [None, "", "B", "-7B", "0B", "1e400B", "9" * 30 + "B", "nanB", "12", "x7B"])
def test_a_size_that_makes_no_sense_is_unknown(text: str | None) -> None:
    assert parameters_of(text) is None


@pytest.mark.parametrize(("text", "parameters"), [("270M", 270 * 10**6), ("8x7B", 56 * 10**9), ("1.5b", 1_500_000_000)])
def test_a_size_is_read(text: str, parameters: int) -> None:
    assert parameters_of(text) == parameters
