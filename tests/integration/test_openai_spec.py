"""Every reply of the OpenAI routes, whole and streamed, against OpenAI's own specification."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.integration.networks import Network
from tests.openai_spec.replies import (
    CHAT,
    CHUNK,
    ERROR,
    MODEL,
    MODELS,
    RESPONSE,
    RESPONSE_EVENT,
    TEXT,
    TEXT_CHUNK,
    VECTORS,
    assert_valid,
    assert_valid_stream,
)

HI = [{"role": "user", "content": "Hi"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
FUNCTION = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": PARAMETERS, "strict": True}}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two answers": {"n": 2},
    "log probabilities": {"logprobs": True, "top_logprobs": 2},
    "a tool": {"tools": [TOOL], "tool_choice": "required"},
    "a schema": {"response_format": FORMAT},
    "inert fields": {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
}
TEXTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two prompts": {"prompt": ["a", "b"]},
    "echo": {"echo": True},
    "log probabilities": {"logprobs": 2},
    "no likeliest tokens": {"logprobs": 0},
    "best of": {"best_of": 2},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "a tool": {"tools": [FUNCTION], "tool_choice": "required"},
    "a schema": {"text": {"format": {"type": "json_schema", "name": "a", "schema": PARAMETERS, "strict": True}}},
    "all fields": {"user": "u", "metadata": {"a": "b"}, "instructions": "Be brief.", "temperature": 0.5, "store": True},
}
MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "no messages": ("/chat/completions", {}),
    "an unknown model": ("/chat/completions", {"model": "none", "messages": HI}),
    "a wrong type": ("/completions", {"prompt": 5}),
    "no input": ("/embeddings", {}),
    "a response without input": ("/responses", {}),
    "no such route": ("/no/such/route", {}),
}


def ask(
    network: Network, path: str, body: dict[str, Any] | None = None, *, key: str | None = None
) -> tuple[int, bytes]:
    headers = {"authorization": f"Bearer {key or network.api_key}", "content-type": "application/json"}
    data = None if body is None else json.dumps({"model": network.model, **body}).encode()
    request = urllib.request.Request(network.base_url + path, data=data, headers=headers)  # noqa: S310 (our own loopback address)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 (as above)
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def answer(network: Network, path: str, body: dict[str, Any] | None = None) -> bytes:
    status, reply = ask(network, path, body)
    assert status == 200, reply
    return reply


@pytest.mark.parametrize("options", CHATS.values(), ids=CHATS)
def test_chats(shared_network: Network, options: dict[str, Any]) -> None:
    body = {"messages": HI, "max_tokens": 12, **options}
    assert_valid(CHAT, json.loads(answer(shared_network, "/chat/completions", body)))
    for streaming in ({}, {"stream_options": {"include_usage": True}}):
        stream = answer(shared_network, "/chat/completions", {**body, "stream": True, **streaming})
        assert stream.endswith(b"data: [DONE]\n\n")
        assert_valid_stream(CHUNK, stream)


@pytest.mark.parametrize("options", TEXTS.values(), ids=TEXTS)
def test_texts(shared_network: Network, options: dict[str, Any]) -> None:
    body = {"prompt": "Once upon", "max_tokens": 5, **options}
    whole = json.loads(answer(shared_network, "/completions", body))
    assert_valid(TEXT, whole)
    for choice in whole["choices"] if "logprobs" in options else ():
        lists = choice["logprobs"]
        assert "".join(lists["tokens"]) == choice["text"]
        assert {len(values) for values in lists.values()} == {5}
        assert {len(top) for top in lists["top_logprobs"]} == {options["logprobs"]}
    if "best_of" not in options:  # which cannot be streamed
        usage = {"stream_options": {"include_usage": True}}
        chunks = assert_valid_stream(
            TEXT_CHUNK, answer(shared_network, "/completions", {**body, "stream": True, **usage})
        )
        texts = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == 0)
        assert texts == whole["choices"][0]["text"]
        offsets = [
            at
            for chunk in chunks
            for choice in chunk["choices"]
            for at in (choice["logprobs"] or {}).get("text_offset", ())
        ]
        assert offsets == ([] if "logprobs" not in options else whole["choices"][0]["logprobs"]["text_offset"])


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors(shared_network: Network, encoding: str) -> None:
    vectors = json.loads(answer(shared_network, "/embeddings", {"input": ["a", "b"], "encoding_format": encoding}))
    if encoding == "base64":  # the specification has numbers alone, clients ask for texts
        assert all(isinstance(item.pop("embedding"), str) for item in vectors["data"])
        vectors["data"] = []
    assert_valid(VECTORS, vectors)


def test_models(shared_network: Network) -> None:
    assert_valid(MODELS, json.loads(answer(shared_network, "/models")))
    assert_valid(MODEL, json.loads(answer(shared_network, f"/models/{shared_network.model}")))


@pytest.mark.parametrize("options", RESPONSES.values(), ids=RESPONSES)
def test_responses(shared_network: Network, options: dict[str, Any]) -> None:
    body = {"input": "Hi", "max_output_tokens": 16, **options}
    response = json.loads(answer(shared_network, "/responses", body))
    assert_valid(RESPONSE, response)
    assert_valid_stream(RESPONSE_EVENT, answer(shared_network, "/responses", {**body, "stream": True}))
    if options.get("store"):
        assert_valid(RESPONSE, json.loads(answer(shared_network, f"/responses/{response['id']}")))


@pytest.mark.parametrize(("path", "body"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(shared_network: Network, path: str, body: dict[str, Any]) -> None:
    status, reply = ask(shared_network, path, body)
    assert 400 <= status < 500
    assert_valid(ERROR, json.loads(reply))


def test_a_wrong_key(shared_network: Network) -> None:
    status, reply = ask(shared_network, "/models", key="sk-wrong")
    assert status == 401
    assert_valid(ERROR, json.loads(reply))
