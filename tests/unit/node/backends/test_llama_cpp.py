"""llama.cpp's slots, after its source (b10586): contexts of their own, or the room of one shared by four."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sparewatt.machine.spawn import free_port
from sparewatt.node.backends.llama_cpp import UNIFIED_SLOTS, LlamaCppBackend
from tests.unit.node.backends.pages import Pages, adapter_over, listed


def server(slots: int, *, n_ctx: int = 4096, **meta: Any) -> Pages:
    given = {"n_ctx": n_ctx, "n_ctx_train": 131_072, "n_params": 8_030_261_312, "size": 4_912_898_304, "ftype": "Q4_K"}
    return {
        "/health": {"status": "ok"},
        "/v1/models": listed("alias", owned_by="llamacpp", meta=given | meta),
        "/props": {
            "default_generation_settings": {"n_ctx": n_ctx},
            "total_slots": slots,
            "model_path": "/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        },
        "/slots": [{"id": number, "n_ctx": n_ctx, "is_processing": False} for number in range(slots)],
    }


@pytest.mark.parametrize(("slots", "tokens"), [(1, 4096), (2, 8192), (8, 8 * 4096)])
async def test_slots_that_its_owner_set_have_a_context_each(slots: int, tokens: int) -> None:
    async with adapter_over(LlamaCppBackend, server(slots)) as adapter:
        load = await adapter.load()
        assert await adapter.slots() == slots

    assert load is not None
    assert load.context_tokens == tokens


async def test_as_many_slots_as_by_default_are_taken_to_share_one_context() -> None:
    """It does not say so; to promise too much would end answers for lack of room."""
    async with adapter_over(LlamaCppBackend, server(UNIFIED_SLOTS)) as adapter:
        load = await adapter.load()

    assert load is not None
    assert (load.slots, load.context_tokens) == (UNIFIED_SLOTS, 4096)


async def test_its_model_is_known_by_its_file() -> None:
    async with adapter_over(LlamaCppBackend, server(2)) as adapter:
        (model,) = await adapter.models()

    assert model.weights_name == "/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    assert (model.weights_bytes, model.parameters, model.quantization) == (4_912_898_304, 8_030_261_312, "Q4_K")


@pytest.mark.parametrize("lie", [-1, 0, 10**18])
async def test_absurd_figures_are_unknown_ones(lie: int) -> None:
    async with adapter_over(LlamaCppBackend, server(2, n_ctx=lie, n_params=lie, size=lie, n_ctx_train=lie)) as adapter:
        (model,) = await adapter.models()
        load = await adapter.load()

    assert (model.context_length, model.parameters, model.weights_bytes) == (None, None, 0)
    assert load is not None
    assert load.context_tokens is None


# progress


class ProgressServer:
    """Streams two events of progress before its answer, as b10586 does with `return_progress`."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        if not self.bodies[-1].get("stream"):
            return web.json_response({"choices": [], "prompt_progress": {"total": 1}})
        progress = [f'data: {{"choices":[],"prompt_progress":{{"processed":{n}}}}}\n\n' for n in (0, 64)]
        text = 'data: {"choices":[{"delta":{"content":"say \\"prompt_progress\\": 1"}}]}\n\ndata: [DONE]\n\n'
        return web.Response(text="".join(progress) + text, content_type="text/event-stream")


@asynccontextmanager
async def progress_server() -> AsyncIterator[tuple[ProgressServer, LlamaCppBackend]]:
    server, port = ProgressServer(), free_port()
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield server, LlamaCppBackend(f"http://127.0.0.1:{port}", session)
    finally:
        await runner.cleanup()


async def post(backend: LlamaCppBackend, body: bytes) -> bytes:
    async with backend.post("/v1/chat/completions", body) as reply:
        return b"".join([chunk async for chunk in reply.chunks])


async def test_a_stream_is_requested_with_its_progress_which_is_dropped() -> None:
    async with progress_server() as (server, backend):
        answer = await post(backend, b'{"messages":[],"stream":true, "seed":{"a":1} } ')
    assert server.bodies == [{"messages": [], "stream": True, "seed": {"a": 1}, "return_progress": True}]
    assert answer == b'data: {"choices":[{"delta":{"content":"say \\"prompt_progress\\": 1"}}]}\n\ndata: [DONE]\n\n'


async def test_a_whole_answer_is_requested_and_passed_on_as_it_is() -> None:
    async with progress_server() as (server, backend):
        answer = await post(backend, b'{"messages":[],"stream":false}')
    assert server.bodies == [{"messages": [], "stream": False}]
    assert b"prompt_progress" in answer
