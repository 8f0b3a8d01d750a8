"""What only some model servers can do. Where one lacks it, it says so in an error or answers with plain text."""

from __future__ import annotations

import json

import pytest

from sparewatt.node.backends.openai import OpenAIBackend
from tests.contract.chats import ask_streamed, ask_whole, chat
from tests.contract.servers import Server, having, lacking

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
