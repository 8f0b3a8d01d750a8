"""The engine over HTTP as a server of each kind: its own adapter recognises it, and its answers stay the same."""

from __future__ import annotations

from typing import get_args

import pytest

from sparewatt.node.backends.discovery import detect_backend
from sparewatt.sim.servers.facts import ServerKind
from sparewatt.testing import EngineSettings, expected_text, render_chat
from tests.unit.testing.client import MODEL, StillClock, chat, engine_client, joined

PATH = "/v1/chat/completions"
KINDS = get_args(ServerKind)


def speaking(kind: ServerKind, **changes: object) -> EngineSettings:
    return EngineSettings(models=(MODEL,), speaks=kind, **changes)  # type: ignore[arg-type]  # fields of the settings


@pytest.mark.parametrize("kind", KINDS)
async def test_the_adapter_of_its_kind_recognises_it_and_lists_its_model(kind: ServerKind) -> None:
    async with engine_client(speaking(kind, engine_kind="batching")) as engine:
        adapter = await detect_backend(engine.base_url, engine.session)
        (model,) = await adapter.models()

    assert adapter.kind == kind
    assert (model.id, model.state, model.context_length) == (MODEL, "warm", 8192)


@pytest.mark.parametrize("engine_kind", ["simple", "slots", "batching"])
@pytest.mark.parametrize("kind", KINDS)
async def test_text_depends_on_the_prompt_only(kind: ServerKind, engine_kind: str) -> None:
    async with engine_client(speaking(kind, engine_kind=engine_kind)) as engine:
        chunks = await engine.stream(PATH, messages=chat("hello"))
        whole = await engine.post(PATH, messages=chat("hello"))

    expected = expected_text(render_chat(chat("hello")))
    assert joined(chunks) == whole["choices"][0]["message"]["content"] == expected


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp"])
async def test_an_open_stream_is_seen_by_the_adapter(kind: ServerKind) -> None:
    settings = speaking(kind, engine_kind="slots" if kind == "llama.cpp" else "batching", slots=4, step_s=30.0)
    async with engine_client(settings) as engine:
        await engine.post(PATH, messages=chat("hello"), max_tokens=5)
        load = await (await detect_backend(engine.base_url, engine.session)).load()

    assert load is not None
    assert load.running == 0
    assert load.totals.generation_tokens == 5


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_prompt_and_answer_together_must_fit_into_the_context(kind: ServerKind) -> None:
    async with engine_client(speaking(kind, n_ctx=64)) as engine:
        status, _ = await engine.try_post(PATH, messages=chat("hello"), max_tokens=64)
        assert status == 400
        await engine.post(PATH, messages=chat("hello"), max_tokens=8)


async def test_llama_cpp_cuts_the_answer_where_its_context_ends() -> None:
    async with engine_client(speaking("llama.cpp", n_ctx=64)) as engine:
        reply = await engine.post(PATH, messages=chat("hello"), max_tokens=640, ignore_eos=True)

    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == 64


async def test_llama_cpp_serves_any_name_and_answers_under_its_own() -> None:
    async with engine_client(speaking("llama.cpp")) as engine:
        reply = await engine.post(PATH, model="another", messages=chat("hello"))
        assert reply["model"] == MODEL
    async with engine_client(speaking("vllm")) as engine:
        assert (await engine.try_post(PATH, model="another", messages=chat("hello")))[0] == 404


@pytest.mark.parametrize(("kind", "status"), [("llama.cpp", 501), ("sglang", 404)])
async def test_without_metrics_there_is_no_such_page(kind: ServerKind, status: int) -> None:
    async with (
        engine_client(speaking(kind, metrics=False)) as engine,
        engine.session.get(f"{engine.base_url}/metrics") as reply,
    ):
        assert reply.status == status


@pytest.mark.parametrize("kind", KINDS)
async def test_pages_of_other_servers_are_not_there(kind: ServerKind) -> None:
    others = {"vllm": "/props", "sglang": "/slots", "llama.cpp": "/api/tags", "ollama": "/metrics"}
    async with (
        engine_client(speaking(kind)) as engine,
        engine.session.get(engine.base_url + others[kind]) as reply,
    ):
        assert reply.status == 404


async def test_a_server_that_loads_has_no_pages_yet() -> None:
    async with (
        engine_client(speaking("vllm", load_s=5.0), clock=StillClock()) as engine,
        engine.session.get(f"{engine.base_url}/v1/models") as reply,
    ):
        assert reply.status == 503


async def test_embeddings_are_batched_too() -> None:
    async with engine_client(speaking("vllm", engine_kind="batching")) as engine:
        reply = await engine.post("/v1/embeddings", input="some words here")
        stats = await engine.stats()

    assert len(reply["data"]) == 1
    assert (stats["finished"], stats["running"]) == (1, 0)
