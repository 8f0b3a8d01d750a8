"""vLLM's pages, written after its source (0.27.1): labels of the cache, the configuration in development mode."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.backend import BackendError
from sparewatt.node.backends.vllm import VllmBackend
from tests.unit.node.backends.pages import Pages, adapter_over, labels, listed

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CACHE = {
    "block_size": 16,
    "cache_dtype": "auto",
    "enable_prefix_caching": True,
    "gpu_memory_utilization": 0.92,
    "kv_cache_max_concurrency": 1.0776,
    "kv_cache_size_tokens": 35_312,
    "num_gpu_blocks": 2207,
    "num_gpu_blocks_override": None,
}


def metrics(*, engines: int = 1, running: float = 0, waiting: float = 0, **cache: object) -> str:
    lines = []
    for engine in range(engines):
        of_engine = labels(engine=engine, model_name=MODEL)
        lines += [
            f"vllm:cache_config_info{{{labels(**CACHE | cache, engine=engine)}}} 1.0",
            f"vllm:num_requests_running{{{of_engine}}} {running}",
            f"vllm:num_requests_waiting{{{of_engine}}} {waiting}",
            f'vllm:num_requests_waiting_by_reason{{{of_engine},reason="capacity"}} {waiting}',
            f"vllm:kv_cache_usage_perc{{{of_engine}}} 0.25",
        ]
    return "\n".join(lines)


def server(**changes: Any) -> Pages:
    listing = listed(MODEL, owned_by="vllm", root=MODEL, parent=None, max_model_len=32768)
    return {"/health": "", "/v1/models": listing, "/metrics": metrics()} | changes


def config(**scheduler: object) -> Pages:
    return {
        "vllm_config": {
            "scheduler_config": scheduler,
            "model_config": {"model": MODEL, "quantization": "awq_marlin", "dtype": "torch.bfloat16"},
            "parallel_config": {"tensor_parallel_size": 1},
        },
        "vllm_env": {},
    }


async def test_the_size_of_its_cache_is_read_and_its_slots_are_not_made_up_from_it() -> None:
    async with adapter_over(VllmBackend, server()) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert (load.context_tokens, load.slots, load.engines, load.kv_used) == (35_312, None, 1, 0.25)
    assert (model.prefix_cache_tokens, model.weights_name, model.kv_bits) == (35_312, MODEL, 16)


async def test_an_older_version_says_blocks_only() -> None:
    async with adapter_over(VllmBackend, server(**{"/metrics": metrics(kv_cache_size_tokens=None)})) as adapter:
        await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert load.context_tokens == 16 * 2207


async def test_engines_of_one_address_are_summed() -> None:
    pages = server(**{"/metrics": metrics(engines=3, running=2, waiting=1)})
    async with adapter_over(VllmBackend, pages) as adapter:
        await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert (load.engines, load.context_tokens, load.running, load.queued) == (3, 3 * 35_312, 6, 3)


async def test_in_development_mode_it_says_how_many_requests_it_runs() -> None:
    pages = server(**{"/server_info": config(max_num_seqs=64, enable_chunked_prefill=True)})
    pages["/metrics"] = metrics(engines=2)
    async with adapter_over(VllmBackend, pages) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()
        assert await adapter.slots() == 2 * 64

    assert load is not None
    assert (load.slots, load.chunks_prefill) == (128, True)
    assert model.quantization == "awq_marlin"


async def test_its_configuration_is_asked_for_once_until_it_restarts() -> None:
    pages = server()
    async with adapter_over(VllmBackend, pages) as adapter:
        for _ in range(3):
            await adapter.models()
        assert pages["requested"].count("/server_info") == 1
        listing = pages.pop("/v1/models")
        with pytest.raises(BackendError):
            await adapter.models()
        pages |= {"/v1/models": listing, "/server_info": config(max_num_seqs=8)}
        await adapter.models()
        assert await adapter.slots() == 8


async def test_an_adapter_runs_on_the_weights_of_its_base() -> None:
    listing = {
        "data": [
            {"id": MODEL, "owned_by": "vllm", "root": MODEL, "max_model_len": 32768},
            {"id": "my-lora", "owned_by": "vllm", "root": "/loras/mine-70b", "parent": MODEL},
        ]
    }
    async with adapter_over(VllmBackend, server(**{"/v1/models": listing})) as adapter:
        assert [model.weights_name for model in await adapter.models()] == [MODEL, MODEL]


@pytest.mark.parametrize(("dtype", "bits"), [("auto", 16), ("fp8", 8), ("fp8_e5m2", 8), ("bfloat16", 16)])
async def test_the_width_of_its_cache_is_read(dtype: str, bits: int) -> None:
    async with adapter_over(VllmBackend, server(**{"/metrics": metrics(cache_dtype=dtype)})) as adapter:
        (model,) = await adapter.models()
    assert model.kv_bits == bits


@pytest.mark.parametrize(
    "cache",
    [
        {"kv_cache_size_tokens": None, "num_gpu_blocks": 10**18},
        {"kv_cache_size_tokens": -5, "num_gpu_blocks": -1},
        {"kv_cache_size_tokens": "many", "num_gpu_blocks": None},
        {"kv_cache_size_tokens": 10**18, "num_gpu_blocks": 0},
        {"kv_cache_size_tokens": None, "num_gpu_blocks": 1 << 39, "block_size": 1 << 39},
    ],
    ids=str,
)
async def test_absurd_blocks_are_an_unknown_cache(cache: dict[str, Any]) -> None:
    async with adapter_over(VllmBackend, server(**{"/metrics": metrics(**cache)})) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()

    assert load is not None
    assert load.context_tokens is None
    assert model.prefix_cache_tokens == 0


@pytest.mark.parametrize("count", ["-7", "1e300", "NaN", "x"])
async def test_absurd_counts_are_no_load_or_a_bounded_one(count: str) -> None:
    page = f'vllm:num_requests_running{{engine="0"}} {count}\nvllm:num_requests_waiting{{engine="0"}} {count}'
    async with adapter_over(VllmBackend, server(**{"/metrics": page})) as adapter:
        await adapter.models()
        load = await adapter.load()

    assert load is None or (0 <= load.running <= 100_000 and 0 <= load.queued <= 100_000)


@pytest.mark.parametrize(
    "answer",
    [config(max_num_seqs=0), config(max_num_seqs=-4), config(max_num_seqs=10**18), {"vllm_config": "text"}, "nonsense"],
    ids=str,
)
async def test_an_absurd_configuration_is_none(answer: object) -> None:
    async with adapter_over(VllmBackend, server(**{"/server_info": answer})) as adapter:
        await adapter.models()
        assert await adapter.slots() is None


async def test_many_slots_stay_within_a_report() -> None:
    async with adapter_over(VllmBackend, server(**{"/server_info": config(max_num_seqs=100_000)})) as adapter:
        await adapter.models()
        assert await adapter.slots() == 4096
