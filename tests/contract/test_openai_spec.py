"""What clients get of every kind of model server, whole and streamed, is what OpenAI's specification says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sparewatt.api.inference.text_filters import TextLogprobs
from sparewatt.inference.dispatch.assembled_reply import AssembledReply
from sparewatt.inference.dispatch.reply import StreamReply
from sparewatt.localnet.demo_model import DEMO_MODEL
from sparewatt.node.backends.backend import Backend
from sparewatt.protocol.openai.chat import as_stream
from tests.contract.chats import CEILING_S, REPEATABLE
from tests.contract.servers import Server, every_dialect, every_kind
from tests.openai_spec.replies import CHAT, CHUNK, TEXT, TEXT_CHUNK, assert_valid, assert_valid_stream

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two answers": {"n": 2},
    "log probabilities": {"logprobs": True, "top_logprobs": 2},
    "a schema": {"response_format": FORMAT, "max_tokens": 40},
}
TEXTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "log probabilities": {"logprobs": 2},
    "two prompts": {"prompt": ["a", "b"]},
}
SERVERS = [*every_kind(), *every_dialect()]


async def streamed(backend: Backend, path: str, body: dict[str, Any]) -> bytes:
    encoded = as_stream(json.dumps({"model": DEMO_MODEL, "max_tokens": 6, **REPEATABLE, **body}).encode())
    async with asyncio.timeout(CEILING_S), backend.post(path, encoded) as reply:
        stream = b"".join([chunk async for chunk in reply.chunks])
        assert reply.status == 200, stream
    return stream


def passed_on(stream: bytes) -> bytes:
    reply = StreamReply(wants_usage=True)
    passed = reply.feed(stream)
    assert passed.broken is None
    return passed.data + reply.end()


def put_together(stream: bytes) -> bytes:
    reply = AssembledReply()
    reply.feed(stream)
    return reply.end()


@pytest.mark.parametrize("server", SERVERS, indirect=True)
@pytest.mark.parametrize("options", CHATS.values(), ids=CHATS)
async def test_a_chat_is_what_the_specification_says(server: Server, backend: Backend, options: dict[str, Any]) -> None:
    stream = await streamed(
        backend, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], **options}
    )
    assert_valid_stream(CHUNK, passed_on(stream))
    assert_valid(CHAT, json.loads(put_together(stream)))


@pytest.mark.parametrize("server", SERVERS, indirect=True)
@pytest.mark.parametrize("options", TEXTS.values(), ids=TEXTS)
async def test_a_text_is_what_the_specification_says(server: Server, backend: Backend, options: dict[str, Any]) -> None:
    stream = await streamed(backend, "/v1/completions", {"prompt": "The river", **options})
    top = options.get("logprobs")
    whole, events = put_together(stream), passed_on(stream)
    if top is not None:
        whole, events = TextLogprobs(top).whole(whole), TextLogprobs(top).feed(events)
        assert_aligned(json.loads(whole)["choices"][0])
    assert_valid_stream(TEXT_CHUNK, events)
    assert_valid(TEXT, json.loads(whole))


def assert_aligned(choice: dict[str, Any]) -> None:
    lists = choice["logprobs"]
    assert {len(values) for values in lists.values()} == {6}
    assert "".join(lists["tokens"]) == choice["text"]
    assert all(
        choice["text"][at:].startswith(token) for at, token in zip(lists["text_offset"], lists["tokens"], strict=True)
    )
    assert all(len(top) <= 2 for top in lists["top_logprobs"])
