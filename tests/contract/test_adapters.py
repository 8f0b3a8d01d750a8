"""One suite for the adapters of all model servers, over answers that were recorded from them.

A server that answers nonsense, hangs, restarts or changes its models never takes the node down and never makes it lie.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.backends import http_client
from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BackendTimeout, BadBackendReply
from sparewatt.node.backends.capability_probe import probe_undeclared_capabilities
from sparewatt.node.backends.discovery import AutoDetectedBackend, detect_backend, find_local_servers
from sparewatt.node.facts.figure import Figure
from sparewatt.node.facts.server_facts import SLOTS_DEFAULT
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.node_report import Capability, validated
from tests.contract.chats import ask_streamed
from tests.contract.recorded_server import Recording, recording, serving
from tests.unit.node.rig import HARDWARE, node_settings

LLAMA_KV = 2 * 2 * 32 * 8 * 128


@dataclass(frozen=True, slots=True)
class Server:
    """What one recorded server is found to be: its first model in full, the others by name and state."""

    name: str
    kind: str
    first: BackendModel
    others: dict[str, str]
    load: BackendLoad | None
    slots: int | None
    listing: str
    """The path whose answer is the list of models."""


BASIC: tuple[Capability, ...] = ("chat", "completions", "json_schema", "logprobs")
SERVERS = [
    Server(
        "llama_cpp",
        "llama.cpp",
        BackendModel(
            "smollm2-135m",
            "warm",
            4096,
            "Q4_1",
            96576768,
            0,
            134515008,
            capabilities=(*BASIC, "tools", "tools_generic"),
            weights_name="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        {},
        BackendLoad(running=0, slots=2, context_tokens=8192),
        2,
        "/v1/models",
    ),
    Server(
        "ollama",
        "ollama",
        BackendModel(
            "llama3:latest",
            "warm",
            8192,
            "Q4_0",
            4661224676,
            LLAMA_KV,
            8030261248,
            capabilities=("chat", "completions", "json_schema", "tools"),
            weights_digest="sha256:6a0746a1ec1aef3e7ec53868f220ff6e389f6f8ef87a01d77c96807de94ca2aa",
        ),
        {"codellama:13b": "on_disk", "nomic-embed-text:latest": "on_disk"},
        None,
        None,
        "/api/tags",
    ),
    Server(
        "vllm",
        "vllm",
        BackendModel(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct",
            "warm",
            32768,
            None,
            0,
            0,
            None,
            prefix_cache_tokens=16 * 81767,
            capabilities=BASIC,
            weights_name="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        ),
        {},
        BackendLoad(running=3, context_tokens=16 * 81767, queued=1, kv_used=0.125),
        None,
        "/v1/models",
    ),
    Server(
        "sglang",
        "sglang",
        BackendModel(
            "qwen/qwen2.5-0.5b-instruct",
            "warm",
            32768,
            None,
            int(0.98 * 2**30),
            int(0.23 * 2**30 / 20480),
            None,
            prefix_cache_tokens=20480,
            capabilities=BASIC,
            weights_name="qwen/qwen2.5-0.5b-instruct",
        ),
        {},
        BackendLoad(running=2, slots=128, context_tokens=20480, queued=5, kv_used=0.28),
        128,
        "/v1/models",
    ),
    Server(
        "lm_studio",
        "lm-studio",
        BackendModel(
            "gemma-3-270m-it-qat",
            "warm",
            4096,
            "Q4_0",
            241410208,
            0,
            270_000_000,
            capabilities=("chat", "completions", "json_schema"),
            weights_name="gemma-3-270m-it-qat",
        ),
        {"text-embedding-nomic-embed-text-v1.5-embedding": "on_disk"},
        None,
        None,
        "/api/v1/models",
    ),
    Server(
        "lm_studio_v0",
        "lm-studio",
        BackendModel(
            "qwen2-vl-7b-instruct",
            "on_disk",
            32768,
            "4bit",
            0,
            0,
            None,
            capabilities=("chat", "completions", "json_schema", "vision"),
        ),
        {"meta-llama-3.1-8b-instruct": "warm", "text-embedding-nomic-embed-text-v1.5": "on_disk"},
        None,
        None,
        "/api/v0/models",
    ),
]
FIGURES: dict[str, tuple[Figure[int], Figure[int] | None, Figure[int] | None, Figure[int]]] = {
    "llama_cpp": (
        Figure(2, "server"),
        Figure(8192, "server"),
        Figure(96576768, "server"),
        Figure(2 * 2 * 30 * 3 * 64, "family table"),
    ),
    "ollama": (Figure(1, "default"), None, Figure(4661224676, "server"), Figure(LLAMA_KV, "server")),
    "vllm": (
        Figure(256, "default"),
        Figure(16 * 81767, "server"),
        Figure(3_088_000_000, "family table"),
        Figure(2 * 2 * 28 * 2 * 128, "family table"),
    ),
    "sglang": (
        Figure(128, "server"),
        Figure(20480, "server"),
        Figure(int(0.98 * 2**30), "server"),
        Figure(int(0.23 * 2**30 / 20480), "server"),
    ),
    "lm_studio": (Figure(1, "default"), None, Figure(241410208, "server"), Figure(4992, "family table")),
    "lm_studio_v0": (
        Figure(1, "default"),
        None,
        Figure(round(7.616e9 * 5 / 8), "family table"),
        Figure(2 * 2 * 28 * 4 * 128, "family table"),
    ),
}
"""Of each server and its first model: slots, tokens in the KV cache, weights, a token in the KV cache."""
NONSENSE: dict[str, bytes] = {
    "nothing": b"",
    "a web page": b"<!doctype html><title>It works!</title>",
    "a list": b"[1, 2, 3]",
    "cut JSON": b'{"data": [{"id": "a',
    "numbers where texts should be": b'{"data":[{"id":7}],"models":[{"name":7,"key":7}],"model_path":7}',
    "absurd figures": b'{"data":[{"id":"m","max_model_len":-5}],"models":[{"name":"m","size":-1}],"total_slots":-1}',
    "nesting without an end": b'{"data":' + b"[" * 100_000,
    "text that is not UTF-8": b'{"data":[{"id":"\xff"}]}',
    "metrics of nothing": b"vllm:num_requests_running NaN\nsglang:num_running_reqs -Inf\n{} 1\n",
}


def every_server() -> Any:
    return pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)


@asynccontextmanager
async def node_over(url: str, session: aiohttp.ClientSession, folder: Path) -> AsyncIterator[Inventory]:
    """As the node's process puts it together."""
    backend = AutoDetectedBackend(url, session, clock=SystemClock())
    yield Inventory(
        node_settings(folder),
        backend,
        HARDWARE,
        clock=SystemClock(),
        rng=seeded(1),
        notify=lambda _: None,
        probe_capabilities=probe_undeclared_capabilities,
    )


def names(inventory: Inventory) -> list[str]:
    return [model.id for model in inventory.specs.models]


@every_server()
class TestAdapterContract:
    async def test_it_is_told_by_its_answers(self, server: Server, session: aiohttp.ClientSession) -> None:
        async with serving(recording(server.name)) as url:
            assert (await detect_backend(url, session)).kind == server.kind

    async def test_its_models_are_described(self, server: Server, session: aiohttp.ClientSession) -> None:
        async with serving(recording(server.name)) as url:
            first, *others = await (await detect_backend(url, session)).models()

        assert first == server.first
        assert {model.id: model.state for model in others} == server.others

    async def test_its_load_and_room_are_told(self, server: Server, session: aiohttp.ClientSession) -> None:
        async with serving(recording(server.name)) as url:
            adapter = await detect_backend(url, session)
            await adapter.models()
            assert (await adapter.load(), await adapter.slots()) == (server.load, server.slots)

    async def test_it_is_found_on_this_machine(self, server: Server, session: aiohttp.ClientSession) -> None:
        async with serving(recording(server.name)) as url:
            port = int(url.rpartition(":")[2])
            (found,) = await find_local_servers(session, ports={"x": port}, env={})

        warm = [state for state in (server.first.state, *server.others.values()) if state == "warm"]
        assert (found.kind, found.models, found.warm) == (server.kind, 1 + len(server.others), len(warm))

    async def test_a_job_goes_through_it(self, server: Server, session: aiohttp.ClientSession) -> None:
        body = {"model": server.first.id, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with serving(recording(server.name), server.first.id) as url:
            answer = await ask_streamed(await detect_backend(url, session), msgspec.json.encode(body))

        assert (answer.status, answer.is_done) == (200, True)

    @pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
    async def test_nonsense_on_every_path_is_an_error_and_no_model(
        self, server: Server, session: aiohttp.ClientSession, answer: bytes
    ) -> None:
        recorded = recording(server.name)
        async with serving(recorded) as url:
            adapter = await detect_backend(url, session)
            for path in recorded.routes:
                recorded.change(path, answer)
            try:
                models = await adapter.models()
            except BackendError:
                models = []
            assert all(model.id == "m" for model in models)  # the only name in all that nonsense
            slots = await adapter.slots()
            assert slots is None or slots >= 1
            load = await adapter.load()
            assert load is None or load.running >= 0

    async def test_one_path_that_breaks_takes_nothing_else_down(
        self, server: Server, session: aiohttp.ClientSession
    ) -> None:
        recorded = recording(server.name)
        async with serving(recorded) as url:
            adapter = await detect_backend(url, session)
            for path in [path for path in recorded.routes if path != server.listing]:
                recorded.changed = {path: (500, b"oops")}
                try:
                    first, *_ = await adapter.models()
                except BadBackendReply:
                    continue
                assert (first.id, first.state) == (server.first.id, server.first.state)

    async def test_a_server_that_hangs_is_slow_and_not_waited_for(
        self, server: Server, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded = recording(server.name)
        async with serving(recorded) as url:
            adapter = await detect_backend(url, session)
            monkeypatch.setattr(http_client, "ASK_S", 0.05)
            recorded.hangs = True
            with pytest.raises(BackendTimeout):
                await adapter.models()
            assert await adapter.load() is None


@every_server()
class TestNodeOverAServer:
    async def test_every_figure_that_the_matcher_needs_is_there_with_its_source(
        self, server: Server, session: aiohttp.ClientSession, tmp_path: Path
    ) -> None:
        ids = [server.first.id, *server.others]
        async with serving(recording(server.name), *ids) as url, node_over(url, session, tmp_path) as node:
            await node.refresh()

        assert node.facts is not None
        slots, kv_tokens, weights, kv_bytes = FIGURES[server.name]
        assert (node.facts.slots, node.facts.kv_tokens) == (slots, kv_tokens)
        assert node.facts.models[0].weights_bytes == weights
        assert node.facts.models[0].kv_bytes_per_token == kv_bytes
        assert node.specs.bandwidth_bytes_s == 1008e9
        assert all(model.kv_bytes_per_token > 0 for model in node.specs.models)

    async def test_what_is_reported_is_what_the_server_has(
        self, server: Server, session: aiohttp.ClientSession, tmp_path: Path
    ) -> None:
        ids = [server.first.id, *server.others]
        async with serving(recording(server.name), *ids) as url, node_over(url, session, tmp_path) as node:
            await node.refresh()
            specs = node.specs

        assert validated(specs) == specs
        assert (specs.backend, [model.id for model in specs.models]) == (server.kind, ids)
        warm = [model for model in specs.models if model.state == "warm"]
        assert warm
        assert all(model.measured is not None for model in warm)

    async def test_a_server_that_restarts_is_gone_and_comes_back(
        self, server: Server, session: aiohttp.ClientSession, tmp_path: Path
    ) -> None:
        recorded = recording(server.name)
        async with serving(recorded, server.first.id) as url, node_over(url, session, tmp_path) as node:
            await node.refresh()
            before = names(node)
            recorded.is_down = True
            await node.refresh()
            assert names(node) == []
            assert node.trouble is not None
            recorded.is_down = False
            await node.refresh()
            assert names(node) == before
            assert not node.trouble

    async def test_models_that_change_are_reported_as_they_are(
        self, server: Server, session: aiohttp.ClientSession, tmp_path: Path
    ) -> None:
        recorded = recording(server.name)
        async with serving(recorded, server.first.id) as url, node_over(url, session, tmp_path) as node:
            await node.refresh()
            listed = recorded.read(server.listing)
            for key in ("data", "models"):
                for model in listed.get(key, ()):
                    model.update({name: "another" for name in ("id", "name", "key") if name in model})
                    model.update({"loaded_instances": []} if "loaded_instances" in model else {})
                listed[key] = listed.get(key, [])[:1]
            recorded.change(server.listing, listed)
            await node.refresh()

        assert names(node) == ["another"]
        assert node.specs.models[0].measured is None


async def test_another_server_on_the_same_port_is_recognised(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    """An owner stops Ollama and starts vLLM there."""
    recorded: Recording = recording("ollama")
    async with serving(recorded, "llama3:latest") as url, node_over(url, session, tmp_path) as node:
        await node.refresh()
        assert node.specs.backend == "ollama"
        other = recording("vllm")
        recorded.name, recorded.routes, recorded.unknown = other.name, other.routes, other.unknown
        await node.refresh()
        await node.refresh()
        assert node.specs.backend == "vllm"


async def test_a_server_that_nobody_knows_is_fronted_all_the_same(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """And what it can do is found out by asking it."""
    recorded = recording("vllm")
    recorded.routes = {"/v1/models": recorded.routes["/v1/models"]}
    recorded.change("/v1/models", {"data": [{"id": "a-model"}]})
    async with serving(recorded, "a-model") as url, node_over(url, session, tmp_path) as node:
        await node.refresh()
        (model,) = node.specs.models

    assert (node.specs.backend, node.specs.slots) == ("openai", SLOTS_DEFAULT)
    assert set(model.capabilities or ()) >= {"chat", "completions", "embeddings", "tools", "json_schema", "logprobs"}


async def test_a_model_that_goes_while_a_job_runs_does_not_disturb_it(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    recorded = recording("ollama")
    body = {"model": "llama3:latest", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with serving(recorded, "llama3:latest") as url, node_over(url, session, tmp_path) as node:
        await node.refresh()
        async with asyncio.TaskGroup() as tasks:
            job = tasks.create_task(ask_streamed(node._backend, msgspec.json.encode(body)))
            recorded.change("/api/tags", {"models": []})
            await node.refresh()
        assert job.result().is_done
        assert names(node) == []


async def test_a_server_that_names_all_that_it_can_do_is_not_asked_for_more(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    recorded = recording("llama_cpp")
    listed = recorded.read("/v1/models")
    listed["data"][0]["meta"]["capabilities"] = ["chat"]
    recorded.change("/v1/models", listed)
    async with serving(recorded, "smollm2-135m") as url, node_over(url, session, tmp_path) as node:
        await node.refresh()
        (model,) = node.specs.models

    assert {"completions", "embeddings", "tools"}.isdisjoint(model.capabilities or ())
