"""POST /v1/messages: whole, streamed, broken and refused, frame by frame."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientResponse

from tests.unit.api.responses.stage import STREAMED, Json, Stage, on_stage, read_events
from tests.unit.gateway.small_gateway import LENDER, USER, bearer, make_services, running
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import COMPLETION, ROLE, text_event

PATH = "/v1/messages"
HI: Json = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
KEY = {"x-api-key": USER, "anthropic-version": "2023-06-01"}


async def post(stage: Stage, *, headers: dict[str, str] | None = None, **fields: Any) -> ClientResponse:
    return await stage.client.post(f"{PATH}?beta=true", json=HI | fields, headers=KEY if headers is None else headers)


@pytest.mark.parametrize("headers", [KEY, bearer()])
async def test_a_chat_completion_becomes_a_message(headers: dict[str, str]) -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await post(stage, headers=headers, system="Be kind.")
        message = await reply.json()
        assert (reply.status, message["type"], message["content"]) == (
            200,
            "message",
            [{"type": "text", "text": "Hello"}],
        )
        assert message["usage"]["input_tokens"] + message["usage"]["output_tokens"] == 7
        assert reply.headers["x-sparewatt-match-id"].startswith("match_")
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
        body = await stage.node_request()
        assert body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        assert stage.node.opened[0].path == "/v1/chat/completions"


async def test_fields_without_effect_are_named_and_do_not_reach_the_node() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await post(stage, metadata={"user_id": "somebody"}, context_management={"edits": [{"type": "x"}]})
        assert reply.headers["x-sparewatt-ignored-params"] == "metadata, context_management"
        assert not {"metadata", "context_management"} & set(await stage.node_request())


async def test_a_stream_is_translated_chunk_by_chunk() -> None:
    async with on_stage() as stage:
        pending = asyncio.ensure_future(post(stage, stream=True))
        assert (await stage.node_request())["stream_options"] == {"include_usage": True}
        stage.node.begin(*STREAMED[:2])
        reply = await pending
        assert reply.content_type == "text/event-stream"
        assert b"message_start" in await reply.content.readuntil(b'"text":"Hel"')
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        rest = await reply.text()
        assert '"text":"lo"' in rest
        assert rest.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')


async def test_a_node_that_is_lost_in_the_middle_ends_the_stream_in_an_error() -> None:
    async with on_stage() as stage:
        pending = asyncio.ensure_future(post(stage, stream=True))
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        reply = await pending
        stage.node.lost()
        events, _ = await read_events(reply)
        assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")
        assert events[-1]["request_id"] == reply.headers["request-id"]


async def test_a_call_with_arguments_that_are_no_object_is_an_error_of_the_node() -> None:
    call = {"function": {"name": "f", "arguments": "rm"}}
    wild = {"message": {"role": "assistant", "content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    async with on_stage() as stage:
        stage.node.answer_when_asked(json.dumps({"choices": [wild]}).encode())
        reply = await post(stage)
        assert (reply.status, (await reply.json())["error"]["type"]) == (502, "api_error")


async def test_tokens_are_estimated_without_a_node() -> None:
    async with running(make_services()) as client:
        short, long = [
            await client.post(f"{PATH}/count_tokens", json=HI | {"system": "x" * size}, headers=KEY)
            for size in (4, 4000)
        ]
        assert short.headers["x-sparewatt-estimated"] == "input_tokens"
        assert (await long.json())["input_tokens"] > (await short.json())["input_tokens"] + 900


@pytest.mark.parametrize(
    ("headers", "fields", "status", "kind"),
    [
        ({}, {}, 401, "authentication_error"),
        ({"x-api-key": "sk-wrong"}, {}, 401, "authentication_error"),
        ({"x-api-key": LENDER}, {}, 403, "permission_error"),
        (KEY, {"model": "nobody-has-it"}, 404, "not_found_error"),
        (KEY, {"messages": []}, 400, "invalid_request_error"),
        (KEY, {"max_tokens": None}, 400, "invalid_request_error"),
        (KEY, {"tools": [{"name": "x"}]}, 400, "invalid_request_error"),
    ],
)
async def test_what_is_wrong_is_told_in_anthropics_words(
    headers: dict[str, str], fields: Json, status: int, kind: str
) -> None:
    async with on_stage() as stage:
        reply = await post(stage, headers=headers, **fields)
        body = await reply.json()
        assert (reply.status, body["type"], body["error"]["type"]) == (status, "error", kind)
        assert body["request_id"] == reply.headers["request-id"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", PATH, 405), ("POST", f"{PATH}/batches", 404)])
async def test_what_is_not_there_is_told_in_anthropics_words(method: str, path: str, status: int) -> None:
    async with running(make_services()) as client:
        reply = await client.request(method, path, headers=KEY)
        assert (reply.status, (await reply.json())["type"]) == (status, "error")


async def test_a_repeated_request_with_a_key_is_answered_once() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        headers = KEY | {"idempotency-key": "a-key"}
        first, second = [await (await post(stage, headers=headers)).json() for _ in range(2)]
        assert first == second
        assert len(stage.node.opened) == 1
