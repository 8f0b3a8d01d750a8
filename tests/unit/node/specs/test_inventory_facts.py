"""Facts of the server on their way into the node's reports: as a vLLM tells them, as an owner corrects them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.node.backends.vllm import VllmBackend
from sparewatt.node.facts.figure import Figure
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.node_report import validated
from tests.unit.node.backends.pages import Pages, adapter_over, labels, listed
from tests.unit.node.rig import node_settings

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CARD = DetectedGpu("nvidia", "NVIDIA GeForce RTX 4090", 24 * 10**9, tflops=82.6)
HARDWARE = Hardware(CARD.model, 1, CARD.vram_bytes, 82.6, gpus=(CARD,))


def metrics(*, running: int = 0, waiting: int = 0, tokens: int = 0) -> str:
    cache = labels(block_size=16, num_gpu_blocks=2207, enable_prefix_caching=True, engine=0)
    return "\n".join(
        [
            f"vllm:cache_config_info{{{cache}}} 1.0",
            f'vllm:num_requests_running{{engine="0"}} {running}',
            f'vllm:num_requests_waiting{{engine="0"}} {waiting}',
            f'vllm:generation_tokens_total{{engine="0"}} {tokens}',
        ]
    )


def vllm() -> Pages:
    """It answers no chat, so nothing is measured."""
    return {"/v1/models": listed(MODEL, owned_by="vllm", root=MODEL, max_model_len=32768), "/metrics": metrics()}


@asynccontextmanager
async def node_over(pages: Pages, folder: Path, **settings: Any) -> AsyncIterator[Inventory]:
    async with adapter_over(VllmBackend, pages) as backend:
        yield Inventory(
            node_settings(folder, **settings),
            backend,
            HARDWARE,
            clock=SystemClock(),
            rng=seeded(1),
            notify=lambda _: None,
        )


async def test_a_node_in_front_of_vllm_reports_slots_memory_and_bandwidth(tmp_path: Path) -> None:
    async with node_over(vllm(), tmp_path) as inventory:
        await inventory.refresh()
        specs, capacity = inventory.specs, inventory.kv_capacity_bytes

    (model,) = specs.models
    assert validated(specs) == specs
    assert (specs.slots, specs.bandwidth_bytes_s) == (256, 1008e9)
    assert (model.weights_bytes, model.kv_bytes_per_token) == (16_060_000_000, 131_072)
    assert capacity == 16 * 2207 * 131_072


async def test_what_the_owner_states_comes_first(tmp_path: Path) -> None:
    facts = "slots=64 kv-tokens=1000 context=4096 weights-bytes=7 kv-bytes-per-token=5 prefix-cache-tokens=3"
    async with node_over(vllm(), tmp_path, server_facts=facts) as inventory:
        await inventory.refresh()

    (model,) = inventory.specs.models
    assert (inventory.specs.slots, inventory.kv_capacity_bytes) == (64, 5000)
    assert (model.context_length, model.weights_bytes, model.prefix_cache_tokens) == (4096, 7, 3)
    assert inventory.facts is not None
    assert inventory.facts.slots == Figure(64, "owner")


async def test_a_fact_with_a_typo_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="no fact of a model server"):
        async with node_over(vllm(), tmp_path, server_facts="slot=64"):
            pass


async def test_a_server_that_runs_fewer_than_its_default_is_found_out(tmp_path: Path) -> None:
    pages = vllm()
    async with node_over(pages, tmp_path) as inventory:
        for poll in range(5):
            pages["/metrics"] = metrics(running=32, waiting=9, tokens=1000 * poll)
            await inventory.refresh()
        assert inventory.specs.slots == 32
        assert inventory.facts is not None
        assert inventory.facts.slots == Figure(32, "learned")


async def test_what_was_learned_goes_with_the_server(tmp_path: Path) -> None:
    pages = vllm()
    async with node_over(pages, tmp_path) as inventory:
        for poll in range(5):
            pages["/metrics"] = metrics(running=32, waiting=9, tokens=1000 * poll)
            await inventory.refresh()
        listing = pages.pop("/v1/models")
        await inventory.refresh()
        assert inventory.trouble is not None
        pages |= {"/v1/models": listing, "/metrics": metrics()}
        await inventory.refresh()
        assert inventory.specs.slots == 256


async def test_a_measured_card_replaces_its_data_sheet(tmp_path: Path) -> None:
    async def bench() -> GpuSpeed:
        return GpuSpeed(by="torch", copy_bytes_s=9.1e11, fp16_tflops=160.0)

    async with node_over(vllm(), tmp_path) as inventory:
        await inventory.refresh()
        await inventory.measure_gpu(bench=bench)
        await inventory.refresh()
        assert inventory.specs.bandwidth_bytes_s == 9.1e11
