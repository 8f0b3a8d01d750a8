"""Raw completions, which every model server has: streamed, and put together as a node does it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sparewatt.localnet.demo_model import DEMO_MODEL
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.backends.reply_stream import EventDataSplitter
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import as_stream, read_completion
from sparewatt.protocol.openai.prompts import count_prompts
from sparewatt.protocol.openai.stream_accumulator import StreamAccumulator
from tests.contract.chats import CEILING_S, REPEATABLE, ask_whole
from tests.contract.servers import Server, every_kind, having

PATH: JobPath = "/v1/completions"
PROMPT = "The river is"


def text(prompt: object = PROMPT, **options: Any) -> bytes:
    return json.dumps({"model": DEMO_MODEL, "prompt": prompt, "max_tokens": 6, **REPEATABLE, **options}).encode()


async def assembled(backend: OpenAIBackend, body: bytes) -> dict[str, Any]:
    assembler, splitter = StreamAccumulator(prompts=count_prompts(PATH, body)), EventDataSplitter()
    async with asyncio.timeout(CEILING_S), backend.post(PATH, as_stream(body)) as reply:
        assert reply.content_type == "text/event-stream"
        async for chunk in reply.chunks:
            for event in splitter.feed(chunk):
                assembler.add(event)
    found: dict[str, Any] = json.loads(assembler.body())
    return found


@pytest.mark.parametrize("server", every_kind(), indirect=True)
async def test_the_stream_put_together_is_the_whole_answer(server: Server, backend: OpenAIBackend) -> None:
    status, whole = await ask_whole(backend, text(), path=PATH)
    put_together = await assembled(backend, text())

    assert status == 200
    assert whole["object"] == put_together["object"] == "text_completion"
    assert put_together["choices"][0]["text"] == whole["choices"][0]["text"] != ""
    assert put_together["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert put_together["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("server", every_kind(), indirect=True)
@pytest.mark.parametrize("prompt", [["The river is", "A stone"], [1, 2, 3]], ids=["two texts", "token ids"])
async def test_prompts_may_be_several_or_token_ids(server: Server, backend: OpenAIBackend, prompt: list[Any]) -> None:
    put_together = await assembled(backend, text(prompt))

    n_prompts = len(prompt) if isinstance(prompt[0], str) else 1
    assert [choice["index"] for choice in put_together["choices"]] == list(range(n_prompts))
    assert all(choice["text"] for choice in put_together["choices"])
    assert put_together["usage"]["completion_tokens"] == 6 * n_prompts


@pytest.mark.parametrize("server", having("logprobs"), indirect=True)
async def test_log_probabilities_are_seen_as_part_of_the_answer(server: Server, backend: OpenAIBackend) -> None:
    put_together = await assembled(backend, text(logprobs=1))

    assert put_together["choices"][0]["logprobs"]
    read = read_completion(json.dumps(put_together).encode())
    assert read is not None
    assert [inside for _, inside in read.choices[0].readable()]
