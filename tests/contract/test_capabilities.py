"""What only some model servers can do. Where one lacks it, it says so in an error or answers with plain text."""

from __future__ import annotations

import asyncio
import json
import re

import aiohttp
import pytest

from sparewatt.inference.dispatch.assembled_reply import AssembledReply
from sparewatt.inference.dispatch.failure_reasons import ErrorCode, classify
from sparewatt.inference.dispatch.reply import WholeReply
from sparewatt.node.backends.llama_cpp import LlamaCppBackend
from sparewatt.node.backends.openai import OpenAIBackend
from tests.contract.chats import CEILING_S, PATH, ask_streamed, ask_whole, chat
from tests.contract.servers import Server, having, lacking
from tests.openai_spec.replies import CHAT, assert_valid

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}
TOOLS = {
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
    "tool_choice": "required",
}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}}
EMBED = json.dumps({"model": "smollm2-135m", "input": ["one", "two"]}).encode()


@pytest.mark.parametrize("server", having("json_schema"), indirect=True)
async def test_an_answer_follows_its_json_schema(server: Server, backend: OpenAIBackend) -> None:
    answer = await ask_streamed(backend, chat("The weather?", stream=True, max_tokens=200, temperature=0, **FORMAT))

    found = json.loads(answer.text)
    assert set(found) == {"city", "warm"}
    assert isinstance(found["warm"], bool)


@pytest.mark.parametrize("server", having("logprobs"), indirect=True)
async def test_every_token_has_its_log_probability(server: Server, backend: OpenAIBackend) -> None:
    _, whole = await ask_whole(
        backend, chat("hello", max_tokens=3, ignore_eos=True, temperature=0, logprobs=True, top_logprobs=2)
    )

    told = whole["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in told) == whole["choices"][0]["message"]["content"]
    assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 2 for token in told)


@pytest.mark.parametrize("server", having("tools"), indirect=True)
async def test_a_tool_that_is_required_is_called(server: Server, backend: OpenAIBackend) -> None:
    _, whole = await ask_whole(backend, chat("The weather in Paris?", **TOOLS))

    (choice,) = whole["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert set(json.loads(call["function"]["arguments"])) == {"city", "warm"}


@pytest.mark.parametrize("server", lacking("tools"), indirect=True)
async def test_tools_are_answered_with_text(server: Server, backend: OpenAIBackend) -> None:
    status, whole = await ask_whole(backend, chat("The weather in Paris?", max_tokens=8, **TOOLS))

    assert status == 200
    assert whole["choices"][0]["message"]["content"]
    assert not whole["choices"][0]["message"].get("tool_calls")


@pytest.mark.parametrize("server", lacking("tools"), indirect=True)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_its_adapter_makes_up_for_it(server: Server, session: aiohttp.ClientSession, *, stream: bool) -> None:
    backend = LlamaCppBackend(server.url, session)
    (model,) = await backend.models()
    assert {"tools", "tools_generic"} <= set(model.capabilities or ())
    asked = chat("The weather in Paris?", stream=stream, max_tokens=200, temperature=0, **TOOLS)
    reply = AssembledReply() if stream else WholeReply()
    async with asyncio.timeout(CEILING_S), backend.post(PATH, asked) as answer:
        assert answer.status == 200
        async for chunk in answer.chunks:
            reply.feed(chunk)

    whole = json.loads(reply.end())
    assert_valid(CHAT, whole)
    (choice,) = whole["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "get_weather")
    assert set(json.loads(call["function"]["arguments"])) == {"city", "warm"}


@pytest.mark.parametrize("server", lacking("tools"), indirect=True)
@pytest.mark.parametrize(("pattern", "is_held"), [(r"^\d{3}$", True), (r"^(?=a)\w$", False)])
async def test_a_pattern_is_held_or_refused(
    server: Server, session: aiohttp.ClientSession, pattern: str, *, is_held: bool
) -> None:
    backend = LlamaCppBackend(server.url, session)
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema | {"additionalProperties": False}}}
    status, whole = await ask_whole(backend, chat("Give a", temperature=0, max_tokens=60, response_format=form))

    if is_held:
        assert re.search(pattern, json.loads(whole["choices"][0]["message"]["content"])["a"])
    else:
        assert classify(status, json.dumps(whole).encode()).code is ErrorCode.INVALID_SCHEMA


@pytest.mark.parametrize("server", having("embeddings"), indirect=True)
async def test_every_text_gets_a_vector(server: Server, backend: OpenAIBackend) -> None:
    status, whole = await ask_whole(backend, EMBED, path="/v1/embeddings")

    assert status == 200
    assert [item["index"] for item in whole["data"]] == [0, 1]
    assert len({len(item["embedding"]) for item in whole["data"]}) == 1


@pytest.mark.parametrize("server", lacking("embeddings"), indirect=True)
async def test_embeddings_are_refused(server: Server, backend: OpenAIBackend) -> None:
    status, refused = await ask_whole(backend, EMBED, path="/v1/embeddings")

    assert status == 501
    assert "embeddings" in refused["error"]["message"]
