"""Every model server goes on with a text as if it had written it: nothing repeated, nothing left out at the joint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sparewatt.node.backends.continuation_probe import AssistantPrefill, ContinuationSupport, probe_continuation
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.jobs.continuation import BackendRequest, as_chat_stream, continuation_request
from sparewatt.testing import expected_text
from tests.contract.chats import REPEATABLE, Answer, ask_streamed, chat, events
from tests.contract.servers import DETERMINISTIC, Server, every_kind

COUNTED = {"stream": True, "stream_options": {"include_usage": True}}
BY_RAW = ContinuationSupport(raw="template")
BY_PREFILL = ContinuationSupport(prefill=AssistantPrefill(needs_flags=True, trims=False))
QUESTION = "Write down the numbers from one to twenty in words."


async def posted(backend: OpenAIBackend, errand: BackendRequest) -> Answer:
    answer = Answer()
    async with backend.post(errand.path, errand.body) as reply:
        answer.status = reply.status
        chunks: AsyncIterator[bytes] = reply.chunks if errand.has_requested_shape else as_chat_stream(reply.chunks)
        async for data in events(chunks):
            if data == b"[DONE]":
                answer.is_done = True
            else:
                answer.events.append(json.loads(data))
    return answer


@pytest.mark.parametrize("server", every_kind(), indirect=True)
async def test_both_ways_to_go_on_are_found(server: Server, backend: OpenAIBackend) -> None:
    ways = await probe_continuation(backend, server.model)

    assert ways == ContinuationSupport(raw="template", prefill=AssistantPrefill(needs_flags=True, trims=False))
    assert ways.capabilities == ("continue_prefill", "continue_raw")


@pytest.mark.parametrize("ways", [BY_RAW, BY_PREFILL], ids=["raw", "prefill"])
@pytest.mark.parametrize("server", every_kind(), indirect=True)
async def test_an_answer_goes_on_from_where_it_was_cut(
    server: Server, backend: OpenAIBackend, ways: ContinuationSupport
) -> None:
    request = chat(QUESTION, max_tokens=16, ignore_eos=True, **REPEATABLE, **COUNTED)
    begun = await ask_streamed(backend, chat(QUESTION, max_tokens=8, ignore_eos=True, **REPEATABLE, **COUNTED))
    rest = await posted(backend, await continuation_request(backend, ways, server.model, request, begun.text))

    assert rest.status == 200
    assert rest.is_done
    assert rest.text
    assert not rest.text.startswith(begun.text)
    assert rest.finish_reasons == ["length"]
    assert all(event["object"] == "chat.completion.chunk" for event in rest.events)
    [before], [after] = begun.usages, rest.usages
    assert after["prompt_tokens"] == before["prompt_tokens"] + before["completion_tokens"]
    if server.kind is DETERMINISTIC:
        whole = await ask_streamed(backend, chat(QUESTION, max_tokens=24, ignore_eos=True, **REPEATABLE, **COUNTED))
        assert begun.text + rest.text == whole.text


@pytest.mark.parametrize("server", [pytest.param(DETERMINISTIC, id="deterministic")], indirect=True)
async def test_a_beginning_of_the_clients_own_is_gone_on_with_too(server: Server, backend: OpenAIBackend) -> None:
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "My own words:"}]
    fields: dict[str, Any] = {"model": server.model, "messages": messages, "max_tokens": 12, "stream": True}
    prompt = "<|user|>Go.\n<|assistant|>My own words:"
    whole = expected_text(prompt, max_tokens=12)
    for ways in (BY_RAW, BY_PREFILL):
        request = json.dumps(fields).encode()
        rest = await posted(backend, await continuation_request(backend, ways, server.model, request, whole[:20]))
        assert (whole[:20] + rest.text).startswith(whole)
