"""The contract of `Backend`, against every model server that we ship: the test engine and llama.cpp."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.backends.backend import Backend, BackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.facts.figure import Figure
from sparewatt.node.facts.owner_facts import OwnerFacts
from sparewatt.node.facts.server_facts import ServerAnswers, resolve_facts
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import validated
from sparewatt.protocol.openai.chat import read_error_message
from tests.contract.chats import (
    CEILING_S,
    ENDLESS,
    PATH,
    REPEATABLE,
    ask_streamed,
    ask_whole,
    chat,
    first_content,
    until_running,
)
from tests.contract.servers import CONTEXT, SLOTS, Server, every_kind
from tests.unit.node.rig import HARDWARE

NONSENSE = {
    "cut JSON": b"{",
    "a list": b"[]",
    "no messages": b'{"model": "smollm2-135m"}',
    "messages that are text": b'{"model": "smollm2-135m", "messages": "hello"}',
    "a word as a number of tokens": chat("hello", max_tokens="many"),
    "a word as a temperature": chat("hello", temperature="hot"),
}


@asynccontextmanager
async def endless_answer(backend: Backend) -> AsyncIterator[BackendReply]:
    """A generation that is under way."""
    async with backend.post(PATH, chat("Tell me a long story.", stream=True, **ENDLESS)) as reply:
        assert reply.status == 200
        async with asyncio.timeout(CEILING_S):
            await first_content(reply.chunks)
        yield reply


@pytest.mark.parametrize("server", every_kind(), indirect=True)
class TestBackendContract:
    async def test_models_are_listed_with_what_the_matcher_needs(self, server: Server, backend: OpenAIBackend) -> None:
        answers = ServerAnswers(backend.kind, await backend.models(), await backend.slots(), await backend.load())
        facts, (model,) = resolve_facts(answers, owner=OwnerFacts(), hardware=HARDWARE)

        assert (model.id, model.state, model.context_length) == (server.model, "warm", CONTEXT)
        assert (facts.slots, facts.kv_tokens) == (Figure(SLOTS, "server"), Figure(SLOTS * CONTEXT, "server"))
        assert model.weights_bytes > 0
        assert model.kv_bytes_per_token > 0
        assert model.parameters is not None
        assert model.parameters > 0

    async def test_an_address_with_v1_is_the_same_server(self, server: Server, backend: OpenAIBackend) -> None:
        with_v1 = OpenAIBackend(f"{server.url}/v1/", backend._session)

        assert await with_v1.models() == await backend.models()

    async def test_slots_are_told_before_any_request(self, server: Server, backend: OpenAIBackend) -> None:
        assert await backend.slots() == SLOTS

    async def test_load_tells_of_open_streams(self, server: Server, backend: OpenAIBackend) -> None:
        await until_running(backend, 0)
        async with AsyncExitStack() as streams:
            for count in range(1, SLOTS + 1):
                await streams.enter_async_context(endless_answer(backend))
                load = await backend.load()
                assert load is not None
                assert (load.running, load.slots) == (count, SLOTS)
        await until_running(backend, 0)

    async def test_leaving_early_stops_the_generation(self, server: Server, backend: OpenAIBackend) -> None:
        """The answer would go on for longer than the ceiling, so a slot that is free again was freed."""
        async with endless_answer(backend):
            await until_running(backend, 1)

        await until_running(backend, 0)

    async def test_a_cancelled_reader_stops_the_generation(self, server: Server, backend: OpenAIBackend) -> None:
        async def read_on() -> None:
            async with endless_answer(backend) as reply:
                async for _ in reply.chunks:
                    pass

        reader = asyncio.create_task(read_on())
        await until_running(backend, 1)
        reader.cancel()

        with pytest.raises(asyncio.CancelledError):
            await reader
        await until_running(backend, 0)

    async def test_a_request_that_gives_up_in_line_is_not_worked_on(
        self, server: Server, backend: OpenAIBackend
    ) -> None:
        async with AsyncExitStack() as streams:
            for _ in range(SLOTS):
                await streams.enter_async_context(endless_answer(backend))
            waiting = asyncio.create_task(ask_streamed(backend, chat("I wait.", stream=True, **ENDLESS)))
            await backend.load()  # a round trip on the same loop: the request above is on its way
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        await until_running(backend, 0)

    async def test_a_chat_streams_role_text_reason_and_done(self, server: Server, backend: OpenAIBackend) -> None:
        answer = await ask_streamed(backend, chat("Say hello.", stream=True, max_tokens=12, **REPEATABLE))

        assert answer.status == 200
        assert answer.deltas[0]["role"] == "assistant"
        assert answer.text
        assert len(answer.finish_reasons) == 1
        assert answer.is_done
        assert {event["object"] for event in answer.events} == {"chat.completion.chunk"}
        assert len({event["id"] for event in answer.events}) == 1

    async def test_counts_come_once_and_last_when_asked_for(self, server: Server, backend: OpenAIBackend) -> None:
        counted = {"stream": True, "stream_options": {"include_usage": True}}
        answer = await ask_streamed(backend, chat("Say hello.", max_tokens=5, ignore_eos=True, **counted))

        (usage,) = answer.usages
        assert answer.events[-1]["usage"] == usage
        assert answer.events[-1]["choices"] == []
        assert usage["completion_tokens"] == 5
        assert usage["prompt_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + 5

    async def test_no_counts_come_when_not_asked_for(self, server: Server, backend: OpenAIBackend) -> None:
        answer = await ask_streamed(backend, chat("Say hello.", stream=True, max_tokens=5))

        assert answer.usages == []

    async def test_a_whole_answer_equals_the_streamed_one(self, server: Server, backend: OpenAIBackend) -> None:
        options = {"max_tokens": 16, **REPEATABLE}
        streamed = await ask_streamed(
            backend, chat("Name a river.", stream=True, stream_options={"include_usage": True}, **options)
        )
        status, whole = await ask_whole(backend, chat("Name a river.", **options))

        (choice,) = whole["choices"]
        assert status == 200
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["content"] == streamed.text
        assert [choice["finish_reason"]] == streamed.finish_reasons
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert whole["usage"][count] == streamed.usages[0][count]

    @pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
    async def test_the_token_limit_is_kept_and_named(self, server: Server, backend: OpenAIBackend, limit: str) -> None:
        _, whole = await ask_whole(backend, chat("Tell me a long story.", ignore_eos=True, **{limit: 3}))

        assert whole["usage"]["completion_tokens"] == 3
        assert whole["choices"][0]["finish_reason"] == "length"

    @pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
    async def test_nonsense_is_refused_with_a_message(
        self, server: Server, backend: OpenAIBackend, body: bytes
    ) -> None:
        async with asyncio.timeout(CEILING_S), backend.post(PATH, body) as reply:
            told = b"".join([chunk async for chunk in reply.chunks])

        assert reply.status == 400
        assert read_error_message(told)

    async def test_a_prompt_longer_than_the_context_is_refused(self, server: Server, backend: OpenAIBackend) -> None:
        async with asyncio.timeout(CEILING_S), backend.post(PATH, chat("river " * (CONTEXT + 1), stream=True)) as reply:
            told = b"".join([chunk async for chunk in reply.chunks])

        assert 400 <= reply.status < 500
        assert "context" in (read_error_message(told) or "")

    async def test_more_requests_than_slots_all_complete(self, server: Server, backend: OpenAIBackend) -> None:
        bodies = [chat(f"Count to {n}.", stream=True, max_tokens=6, ignore_eos=True) for n in range(3 * SLOTS)]
        answers = await asyncio.gather(*(ask_streamed(backend, body) for body in bodies))

        assert all(answer.is_done and answer.finish_reasons == ["length"] for answer in answers)
        await until_running(backend, 0)

    async def test_its_speed_can_be_measured(self, server: Server, backend: OpenAIBackend) -> None:
        meter = SpeedMeter(backend=backend, clock=SystemClock(), rng=SystemRng())
        runs = [await meter.quick(server.model, at_once=SLOTS)]

        async def keep(run: SpeedSamples) -> None:
            runs.append(run)

        await meter.refine(server.model, runs[0], at_once=SLOTS, context_length=CONTEXT, keep=keep)
        assert len(runs) > 1
        for run in runs:
            speed = fit_speed(run)
            assert validated(speed) == speed
            assert all(math.isfinite(value) and value > 0 for value in (speed.prefill_tps, speed.decode_tps))
