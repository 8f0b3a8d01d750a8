"""The deterministic engine as vLLM, SGLang, llama.cpp and Ollama, read by the adapters that nodes use for them.

Its pages as llama.cpp are compared with those of the real program, field by field.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from sparewatt.node.backends.backend import Backend, BackendReply
from sparewatt.node.backends.discovery import detect_backend
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.protocol.openai.chat import read_error_message
from sparewatt.sim.servers.facts import ServerKind
from tests.contract.chats import CEILING_S, PATH, ask_streamed, ask_whole, chat, first_content, until, until_running
from tests.contract.servers import CONTEXT, LLAMA, SLOTS, SPEAKING, Kind, Server, every_dialect

LONG = {"ignore_eos": True, "max_tokens": 4000}
"""An answer that goes on for longer than any ceiling, and fits into the context."""
TELLS_LOAD = tuple(param for param in every_dialect() if param.id != "ollama")


@pytest.fixture
async def adapter(server: Server, session: aiohttp.ClientSession) -> OpenAIBackend:
    """As a node finds it."""
    return await detect_backend(server.url, session)


@asynccontextmanager
async def long_answer(backend: Backend) -> AsyncIterator[BackendReply]:
    async with backend.post(PATH, chat("Tell me a long story.", stream=True, **LONG)) as reply:
        assert reply.status == 200
        async with asyncio.timeout(CEILING_S):
            await first_content(reply.chunks)
        yield reply


@pytest.mark.parametrize("server", every_dialect(), indirect=True)
class TestDialect:
    async def test_it_is_taken_for_what_it_speaks_as(self, server: Server, adapter: OpenAIBackend) -> None:
        (model,) = await adapter.models()

        assert SPEAKING[adapter.kind] is server.kind  # type: ignore[index]  # a kind that is missing fails the test
        assert (model.id, model.state, model.context_length) == (server.model, "warm", CONTEXT)

    async def test_a_whole_answer_equals_the_streamed_one(self, server: Server, adapter: OpenAIBackend) -> None:
        streamed = await ask_streamed(adapter, chat("Name a river.", stream=True, max_tokens=16))
        status, whole = await ask_whole(adapter, chat("Name a river.", max_tokens=16))

        assert status == 200
        assert whole["choices"][0]["message"]["content"] == streamed.text
        assert streamed.is_done

    async def test_a_prompt_longer_than_the_context_is_refused(self, server: Server, adapter: OpenAIBackend) -> None:
        async with asyncio.timeout(CEILING_S), adapter.post(PATH, chat("river " * (CONTEXT + 1), stream=True)) as reply:
            told = b"".join([chunk async for chunk in reply.chunks])

        assert reply.status == 400
        assert "context" in (read_error_message(told) or "")

    async def test_more_requests_than_run_at_once_all_complete(self, server: Server, adapter: OpenAIBackend) -> None:
        bodies = [chat(f"Count to {n}.", stream=True, max_tokens=6, ignore_eos=True) for n in range(3 * SLOTS)]
        answers = await asyncio.gather(*(ask_streamed(adapter, body) for body in bodies))

        assert all(answer.is_done and answer.finish_reasons == ["length"] for answer in answers)

    async def test_nonsense_is_refused_with_a_message(self, server: Server, adapter: OpenAIBackend) -> None:
        async with asyncio.timeout(CEILING_S), adapter.post(PATH, b'{"model": "smollm2-135m"}') as reply:
            told = b"".join([chunk async for chunk in reply.chunks])

        assert reply.status == 400
        assert read_error_message(told)


@pytest.mark.parametrize("server", TELLS_LOAD, indirect=True)
class TestDialectLoad:
    async def test_running_and_waiting_requests_are_told(self, server: Server, adapter: OpenAIBackend) -> None:
        async def is_waiting() -> bool:
            load = await adapter.load()
            return load is not None and (load.running, load.queued) == (SLOTS, 1)

        await until_running(adapter, 0)
        async with AsyncExitStack() as streams:
            for _ in range(SLOTS):
                await streams.enter_async_context(long_answer(adapter))
            waiting = asyncio.create_task(ask_streamed(adapter, chat("I wait.", stream=True, **LONG)))
            await until(is_waiting, "nobody waits")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await until_running(adapter, 0)

    async def test_tokens_are_counted(self, server: Server, adapter: OpenAIBackend) -> None:
        before = await adapter.load()
        await ask_streamed(adapter, chat("Count to 9.", stream=True, max_tokens=9, ignore_eos=True))
        after = await adapter.load()

        assert before is not None
        assert after is not None
        assert (after.totals.generation_tokens or 0) - (before.totals.generation_tokens or 0) == 9


class TestLikeTheRealLlamaCpp:
    """Every field that the engine shows is one of the real program's, of the same type."""

    @pytest.fixture
    def both(self, start_once: Callable[[Kind], Server]) -> tuple[str, str]:
        return start_once(LLAMA).url, start_once(SPEAKING["llama.cpp"]).url

    @pytest.mark.parametrize("path", ["/v1/models", "/models", "/props", "/slots", "/health"])
    async def test_pages_have_the_same_fields(
        self, both: tuple[str, str], session: aiohttp.ClientSession, path: str
    ) -> None:
        real, ours = [msgspec.json.decode((await fetch(session, url + path))[1]) for url in both]

        assert not unlike(ours, real)

    async def test_metrics_have_the_same_names_and_types(
        self, both: tuple[str, str], session: aiohttp.ClientSession
    ) -> None:
        real, ours = [
            set(re.findall(r"^# TYPE (.*)$", (await fetch(session, f"{url}/metrics"))[1].decode(), re.MULTILINE))
            for url in both
        ]

        assert ours == real

    @pytest.mark.parametrize("path", ["/nowhere", "/version", "/api/tags"])
    async def test_an_unknown_path_gets_the_same_answer(
        self, both: tuple[str, str], session: aiohttp.ClientSession, path: str
    ) -> None:
        real, ours = [await fetch(session, url + path) for url in both]

        assert ours == real

    async def test_an_overflow_is_told_in_the_same_shape(
        self, both: tuple[str, str], session: aiohttp.ClientSession
    ) -> None:
        real, ours = [
            await ask_whole(OpenAIBackend(url, session), chat("river " * (CONTEXT + 1000), max_tokens=3))
            for url in both
        ]

        assert ours[0] == real[0]
        assert ours[1]["error"].keys() == real[1]["error"].keys()
        assert re.sub(r"\d+", "N", ours[1]["error"]["message"]) == re.sub(r"\d+", "N", real[1]["error"]["message"])


async def fetch(session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    async with session.get(url) as reply:
        return reply.status, await reply.read()


def unlike(ours: Any, real: Any, *, where: str = "") -> list[str]:
    """The places of fields that the real page does not have or has with another type. It may have more."""
    if isinstance(ours, dict) and isinstance(real, dict):
        missing = [f"{where}.{key}" for key in ours.keys() - real.keys()]
        return missing + [
            each for key in ours.keys() & real.keys() for each in unlike(ours[key], real[key], where=f"{where}.{key}")
        ]
    if isinstance(ours, list) and isinstance(real, list):
        pairs = zip(ours, real, strict=False)
        return [each for at, (one, other) in enumerate(pairs) for each in unlike(one, other, where=f"{where}[{at}]")]
    return [] if type(ours) is type(real) else [where]


def test_a_field_that_the_real_page_lacks_is_found() -> None:
    assert unlike({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}) == [".a[0].c"]
    assert unlike({"a": 1}, {"a": "1"}) == [".a"]
    assert unlike({"a": 1}, {"a": 2, "more": 3}) == []


def test_every_kind_that_the_engine_speaks_as_is_checked() -> None:
    kinds: set[ServerKind] = {"vllm", "sglang", "llama.cpp", "ollama"}

    assert SPEAKING.keys() == kinds
