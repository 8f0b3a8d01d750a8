"""POST /api/chat, /api/generate and /api/embed, frame by frame."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientResponse

from tests.unit.api.responses.stage import STREAMED, Json, Stage, on_stage
from tests.unit.gateway.small_gateway import LENDER, bearer
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, ROLE, text_event

HI: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


async def post(
    stage: Stage, path: str = "/api/chat", *, headers: dict[str, str] | None = None, **fields: Any
) -> ClientResponse:
    body = (HI if path == "/api/chat" else {"model": MODEL}) | fields
    return await stage.client.post(path, json=body, headers=bearer() if headers is None else headers)


async def test_a_chat_completion_becomes_a_reply() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await post(stage, stream=False, options={"num_predict": 4, "num_ctx": 2048}, keep_alive="5m")
        answer = await reply.json()
        assert (reply.status, answer["message"]) == (200, {"role": "assistant", "content": "Hello"})
        assert answer["prompt_eval_count"] + answer["eval_count"] == 7
        assert reply.headers["x-sparewatt-ignored-params"] == "keep_alive, options.num_ctx"
        assert (await stage.node_request())["max_tokens"] == 4


async def test_a_stream_is_lines_of_json() -> None:
    async with on_stage() as stage:
        pending = asyncio.ensure_future(post(stage))
        await stage.node_request()
        stage.node.begin(*STREAMED)
        stage.node.end()
        reply = await pending
        assert reply.content_type == "application/x-ndjson"
        lines = [json.loads(line) for line in (await reply.text()).splitlines()]
        assert [line["message"]["content"] for line in lines] == ["Hel", "lo", ""]
        assert [line["done"] for line in lines] == [False, False, True]


async def test_a_node_that_is_lost_in_the_middle_ends_the_stream_in_an_error() -> None:
    async with on_stage() as stage:
        pending = asyncio.ensure_future(post(stage))
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        reply = await pending
        stage.node.lost()
        assert list(json.loads((await reply.text()).splitlines()[-1])) == ["error"]


async def test_a_prompt_becomes_a_chat_and_a_raw_one_a_completion() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await post(stage, "/api/generate", prompt="Hi", stream=False)
        assert (await reply.json())["response"] == "Hello"
        stage.node.answer_when_asked(COMPLETION)
        await post(stage, "/api/generate", prompt="Hi", raw=True, stream=False)
        assert [opened.path for opened in stage.node.opened] == ["/v1/chat/completions", "/v1/completions"]


async def test_texts_become_vectors_in_their_order() -> None:
    vectors = {
        "data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}],
        "usage": {"prompt_tokens": 2},
    }
    async with on_stage() as stage:
        specs = some_specs(a_model(capabilities=("embeddings",)), slots=8)
        stage.services.table.connect(node_id(1), specs, now_s=NOW_S)
        stage.node.answer_when_asked(json.dumps(vectors).encode())
        reply = await post(stage, "/api/embed", input=["a", "b"])
        assert (await reply.json())["embeddings"] == [[1.0], [2.0]]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_a_request_without_a_prompt_costs_nothing(path: str) -> None:
    async with on_stage() as stage:
        reply = await post(stage, path, messages=[])
        assert (reply.status, (await reply.json())["done_reason"]) == (200, "load")
        assert not stage.node.opened
        assert (await post(stage, path, messages=[], model="nobody-has-it")).status == 404


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({}, {}, 401),
        (bearer("sk-wrong"), {}, 401),
        (bearer(LENDER), {}, 403),
        (bearer(), {"model": "nobody-has-it"}, 404),
        (bearer(), {"options": {"temperature": "hot"}}, 400),
        (bearer(), {"template": "{{ .Prompt }}"}, 400),
    ],
)
async def test_what_is_wrong_is_one_text(headers: dict[str, str], fields: Json, status: int) -> None:
    async with on_stage() as stage:
        reply = await post(stage, headers=headers, **fields)
        body = await reply.json()
        assert (reply.status, list(body)) == (status, ["error"])
        assert isinstance(body["error"], str)


async def test_what_ollama_does_with_files_is_not_there() -> None:
    async with on_stage() as stage:
        reply = await post(stage, "/api/pull")
        assert (reply.status, list(await reply.json())) == (404, ["error"])
