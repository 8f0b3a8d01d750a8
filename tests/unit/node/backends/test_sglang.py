"""SGLang's pages, written after its source (August 2026): GiB of one card, engines apart, load without `/metrics`."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.sglang import GIB, SglangBackend
from tests.unit.node.backends.pages import Pages, adapter_over, listed

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
METRICS = 'sglang:num_running_reqs{engine_type="unified"} 7\nsglang:num_queue_reqs{engine_type="unified"} 2'


def state(**changes: Any) -> dict[str, Any]:
    memory = {"weight": 33.0, "kvcache": 20.0, "token_capacity": 131_072, "graph": {}}
    return {"memory_usage": memory, "effective_max_running_requests_per_dp": 2048} | changes


def server(**info: Any) -> Pages:
    given = {
        "model_path": MODEL,
        "quantization": None,
        "kv_cache_dtype": "auto",
        "chunked_prefill_size": 8192,
        "tp_size": 4,
        "pp_size": 1,
        "max_total_num_tokens": 131_072,
        "internal_states": [state()],
    }
    return {
        "/health": "",
        "/v1/models": listed("alias", owned_by="sglang", max_model_len=8192),
        "/model_info": {"model_path": MODEL, "is_generation": True},
        "/server_info": given | info,
        "/metrics": METRICS,
    }


async def test_what_one_card_holds_is_multiplied_by_the_cards() -> None:
    async with adapter_over(SglangBackend, server()) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()

    assert model.weights_bytes == 4 * 33 * GIB
    assert model.kv_bytes_per_token == 4 * 20 * GIB // 131_072
    assert model.weights_name == MODEL
    assert load is not None
    assert (load.slots, load.context_tokens, load.chunks_prefill) == (2048, 131_072, True)


async def test_engines_have_slots_and_a_cache_each() -> None:
    async with adapter_over(SglangBackend, server(internal_states=[state(), state()])) as adapter:
        await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert (load.engines, load.slots, load.context_tokens) == (2, 4096, 2 * 131_072)


async def test_without_metrics_its_loads_are_read() -> None:
    pages = server()
    del pages["/metrics"]
    engine = {"dp_rank": 0, "num_running_reqs": 5, "num_waiting_reqs": 1, "token_usage": 0.5}
    pages["/v1/loads"] = {"version": "0.5.9", "loads": [engine, engine | {"dp_rank": 1, "token_usage": 0.75}]}
    async with adapter_over(SglangBackend, pages) as adapter:
        await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert (load.running, load.queued, load.kv_used, load.context_tokens) == (10, 2, 0.75, 131_072)


@pytest.mark.parametrize(
    "loads",
    [{"loads": []}, {"loads": [{"num_running_reqs": -1}]}, {"loads": [{"num_running_reqs": 10**18}]}, "nonsense"],
    ids=str,
)
async def test_absurd_loads_are_no_load(loads: object) -> None:
    pages = server() | {"/metrics": None, "/v1/loads": loads}
    async with adapter_over(SglangBackend, pages) as adapter:
        await adapter.models()
        assert await adapter.load() is None


async def test_prefill_in_one_piece_and_a_narrow_cache_are_read() -> None:
    info = {"chunked_prefill_size": -1, "kv_cache_dtype": "fp8_e4m3", "internal_states": []}
    async with adapter_over(SglangBackend, server(**info)) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()
        assert await adapter.slots() is None

    assert (model.kv_bits, model.weights_bytes, model.kv_bytes_per_token) == (8, 0, 0)
    assert load is not None
    assert (load.chunks_prefill, load.context_tokens) == (False, 131_072)


@pytest.mark.parametrize(
    "lie",
    [
        {"memory_usage": {"weight": -1.0}},
        {"memory_usage": {"weight": 1e300}},
        {"memory_usage": {"token_capacity": 10**18}},
        {"effective_max_running_requests_per_dp": 0},
    ],
    ids=str,
)
async def test_absurd_memory_is_unknown_memory(lie: dict[str, Any]) -> None:
    async with adapter_over(SglangBackend, server(internal_states=[state(**lie)])) as adapter:
        (model,) = await adapter.models()
        assert (model.weights_bytes, model.kv_bytes_per_token, await adapter.slots()) == (0, 0, None)
