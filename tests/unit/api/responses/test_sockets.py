"""Responses over a WebSocket: one after another, each a request of its own, with the events of a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from sparewatt.api.responses import response_socket
from sparewatt.inference.responses import socket_budget
from tests.unit.api.responses.stage import PATH, STREAMED, Json, Stage, on_stage
from tests.unit.gateway.small_gateway import LENDER, USER, bearer, key_row
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import ROLE, text_event
from tests.waiting import until

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@asynccontextmanager
async def a_socket(stage: Stage, *, key: str = USER) -> AsyncIterator[ClientWebSocketResponse]:
    async with stage.client.ws_connect(PATH, headers=bearer(key)) as ws:
        yield ws


async def create(ws: ClientWebSocketResponse, **fields: Any) -> None:
    await ws.send_json({"type": "response.create", "model": MODEL, "input": "Hi"} | fields)


async def events_of(ws: ClientWebSocketResponse) -> list[Json]:
    """Up to the terminal one."""
    events: list[Json] = []
    while not events or events[-1]["type"] not in TERMINAL:
        events.append(await ws.receive_json(timeout=10))
    return events


async def turn(stage: Stage, ws: ClientWebSocketResponse, **fields: Any) -> Json:
    """The last event of a response that a node answers."""
    stage.node.answer_when_asked(*STREAMED)
    await create(ws, **fields)
    return (await events_of(ws))[-1]


def last_messages(stage: Stage) -> list[str]:
    body = stage.node.body.decode()
    return [message["content"] for message in json.loads(body[body.rindex('{"model"') :])["messages"]]


async def test_a_response_comes_as_the_events_of_a_stream() -> None:
    async with on_stage() as stage, a_socket(stage) as ws:
        stage.node.answer_when_asked(*STREAMED)
        await create(ws)
        events = await events_of(ws)
        assert [event["type"] for event in events[:3]] == [
            *("response.created", "response.in_progress", "response.output_item.added")
        ]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["status"] == "completed"
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"
        assert stage.services.responses._live == {}


async def test_many_responses_go_over_one_socket_and_each_is_charged() -> None:
    async with on_stage() as stage:
        stage.services.keys.put([replace(key_row("slow", "sk-sw-slow", "inference"), requests_per_min=3)])
        async with a_socket(stage, key="sk-sw-slow") as ws:
            ids = {(await turn(stage, ws))["response"]["id"] for _ in range(3)}
            assert len(ids) == len(stage.node.opened) == 3
            refused = await turn(stage, ws)
            assert (refused["status"], refused["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_what_is_not_kept_goes_on_on_its_own_socket_and_nowhere_else() -> None:
    async with on_stage() as stage:
        async with a_socket(stage) as ws:
            first = (await turn(stage, ws, input="One", store=False))["response"]
            assert stage.stored.rows == {}
            second = (await turn(stage, ws, input="Two", store=False, previous_response_id=first["id"]))["response"]
            assert last_messages(stage) == ["One", "Hello", "Two"]
            gone = await turn(stage, ws, previous_response_id=first["id"])  # the last one only
            assert (gone["type"], gone["status"]) == ("error", 400)
        async with a_socket(stage) as ws:
            gone = await turn(stage, ws, input="Three", store=False, previous_response_id=second["id"])
            assert gone["error"]["code"] == "previous_response_not_found"
            assert (await turn(stage, ws, input="Three"))["type"] == "response.completed"


async def test_a_failed_continuation_forgets_what_it_went_on_from() -> None:
    async with on_stage() as stage, a_socket(stage) as ws:
        first = (await turn(stage, ws, store=False))["response"]["id"]
        stray = [{"type": "function_call_output", "call_id": "call_missing", "output": "x"}]
        failed = await turn(stage, ws, store=False, previous_response_id=first, input=stray)
        assert (failed["type"], failed["status"], failed["error"]["param"]) == ("error", 400, "input")
        again = await turn(stage, ws, store=False, previous_response_id=first)
        assert again["error"]["code"] == "previous_response_not_found"


async def test_what_is_kept_goes_on_over_http_and_back() -> None:
    async with on_stage() as stage, a_socket(stage) as ws:
        first = (await turn(stage, ws, input="One"))["response"]["id"]
        stage.node.answer_when_asked(*STREAMED)
        reply = await stage.post({"input": "Two", "previous_response_id": first, "stream": True})
        second = json.loads((await reply.text()).split("data: ")[1].partition("\n")[0])["response"]["id"]
        await turn(stage, ws, input="Three", previous_response_id=second)
        assert last_messages(stage) == ["One", "Hello", "Two", "Hello", "Three"]
        await stage.client.delete(f"{PATH}/{first}", headers=bearer())
        gone = await turn(stage, ws, previous_response_id=second)
        assert gone["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("by", ["message", "name", "http"])
async def test_a_response_is_cancelled_while_it_is_written(by: str) -> None:
    async with on_stage() as stage, a_socket(stage) as ws:
        await create(ws)
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        response_id = (await ws.receive_json(timeout=10))["response"]["id"]
        if by == "http":
            await stage.post({}, path=f"{PATH}/{response_id}/cancel")
        else:
            await ws.send_json({"type": "response.cancel"} | ({"response_id": response_id} if by == "name" else {}))
        last = (await events_of(ws))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
        assert stage.node.cancelled == [1]
        await ws.send_json({"type": "response.cancel"})
        assert (await ws.receive_json(timeout=10))["error"]["param"] == "response_id"


async def test_when_the_client_leaves_the_node_stops_and_what_was_written_is_kept() -> None:
    async with on_stage() as stage:
        async with a_socket(stage) as ws:
            await create(ws, store=True)
            await stage.node_request()
            stage.node.begin(ROLE, text_event("Hel"))
            response_id = (await ws.receive_json(timeout=10))["response"]["id"]
        await until(lambda: stage.node.cancelled == [1])
        await until(lambda: stage.stored.rows[response_id].response.status == "cancelled")


async def test_a_wrong_message_is_answered_by_an_error_and_the_socket_goes_on() -> None:
    wrong: list[tuple[str, str | None]] = [
        ("no json", None),
        ("[]", "type"),
        ('{"type": "response.steer"}', "type"),
        ('{"type": "response.create", "model": "m", "background": true}', "background"),
        ('{"type": "response.create", "input": "Hi"}', "model"),
    ]
    async with on_stage() as stage, a_socket(stage) as ws:
        for text, param in wrong:
            await ws.send_str(text)
            error = await ws.receive_json(timeout=10)
            assert (error["type"], error["status"], error["error"]["param"]) == ("error", 400, param)
        assert (await turn(stage, ws, stream=True, background=False))["type"] == "response.completed"


async def test_a_key_that_was_revoked_meanwhile_gets_no_more_answers() -> None:
    async with on_stage() as stage, a_socket(stage) as ws:
        await turn(stage, ws)
        stage.services.keys.put([key_row("user", USER, "inference", version=2, revoked=True)])
        error = await turn(stage, ws)
        assert (error["status"], error["error"]["code"]) == (401, "invalid_api_key")


async def test_who_may_open_a_socket() -> None:
    async with on_stage() as stage:
        for headers, status in ((bearer("sk-sw-wrong"), 401), (bearer(LENDER), 403), ({}, 401)):
            with pytest.raises(WSServerHandshakeError) as caught:
                await stage.client.ws_connect(PATH, headers=headers)
            assert caught.value.status == status
        assert (await stage.client.get(PATH, headers=bearer())).status == 400


async def test_a_key_opens_a_bounded_number_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_budget, "SOCKETS_PER_KEY_MAX", 1)
    async with on_stage() as stage:
        async with a_socket(stage):
            with pytest.raises(WSServerHandshakeError) as caught:
                await stage.client.ws_connect(PATH, headers=bearer())
            assert caught.value.status == 429
        async with a_socket(stage) as ws:
            await turn(stage, ws)


async def test_what_a_socket_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_budget, "REMEMBERED_PER_KEY_BYTES_MAX", 10)
    async with on_stage() as stage, a_socket(stage) as ws:
        first = (await turn(stage, ws, store=False))["response"]["id"]
        gone = await turn(stage, ws, store=False, previous_response_id=first)
        assert gone["error"]["code"] == "previous_response_not_found"


async def test_a_socket_says_when_its_hour_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_socket, "SOCKET_LIFE_S", 0.05)
    async with on_stage() as stage, a_socket(stage) as ws:
        error = await ws.receive_json(timeout=10)
        assert (error["status"], error["error"]["code"]) == (400, "websocket_connection_limit_reached")
        assert (await ws.receive(timeout=10)).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING)
