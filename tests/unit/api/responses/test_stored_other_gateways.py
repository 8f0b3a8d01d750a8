"""Stored responses that another gateway writes, or wrote until it died; and a gateway that stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparewatt.api.responses import stored
from sparewatt.core.ids import KeyId
from sparewatt.gateway.chores import _report_responses
from sparewatt.gateway.process import _drain
from sparewatt.inference.responses import registry
from tests.unit.api.responses.stage import PATH, STREAMED, Stage, error_of, on_stage, read_events
from tests.unit.inference.scripted import ROLE, text_event
from tests.waiting import until


async def in_background(stage: Stage) -> str:
    begun = await (await stage.post({"background": True, "store": True})).json()
    await stage.node_request()
    stage.node.begin(ROLE, text_event("Hel"))
    response_id: str = begun["id"]
    return response_id


def move_to_other_gateway(stage: Stage, response_id: str) -> registry.LiveResponse:
    """This gateway forgets it, as if another one wrote it. Returns the writer, which goes on."""
    return stage.services.responses._live.pop(response_id)


async def test_a_request_to_cancel_reaches_the_gateway_that_writes() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        await stage.stored.request_cancel(response_id, key_id=KeyId("key_user"))
        await _report_responses(stage.services)
        await until(lambda: stage.stored.rows[response_id].response.status == "cancelled")
        assert stage.node.cancelled == [1]


async def test_cancelling_at_another_gateway_waits_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        live = move_to_other_gateway(stage, response_id)
        pending = asyncio.ensure_future(stage.post({}, path=f"{PATH}/{response_id}/cancel"))
        await until(lambda: stage.stored.rows[response_id].cancel_asked)
        live.cancel()
        assert (await (await pending).json())["status"] == "cancelled"


async def test_a_response_of_another_gateway_is_streamed_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        move_to_other_gateway(stage, response_id)
        reply = await stage.get(f"{response_id}?stream=true")
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        events, done = await read_events(reply)
        assert done
        assert events[-1]["type"] == "response.completed"


async def test_a_response_whose_gateway_died_has_failed() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        move_to_other_gateway(stage, response_id)
        row = stage.stored.rows[response_id]
        row.response = replace(row.response, abandoned=True)
        shown = await (await stage.get(response_id)).json()
        assert (shown["status"], shown["error"]["code"]) == ("failed", "server_error")
        cancelled = await (await stage.post({}, path=f"{PATH}/{response_id}/cancel")).json()
        assert cancelled["status"] == "failed"


async def test_a_stopping_gateway_finishes_background_responses() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        await _drain(stage.services)
        assert stage.stored.rows[response_id].response.status == "completed"
        reply = await stage.post({})
        assert (reply.status, (await error_of(reply))["code"]) == (503, "shutting_down")


async def test_a_background_response_that_does_not_end_in_time_is_cancelled_and_stored() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        await stage.services.responses.close(within_s=0.05)
        assert stage.stored.rows[response_id].response.status == "cancelled"
        assert stage.node.cancelled == [1]


async def test_background_responses_of_a_key_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RESPONSES_IN_BACKGROUND_PER_KEY_MAX", 1)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        reply = await stage.post({"background": True, "store": True})
        assert (reply.status, (await error_of(reply))["code"]) == (429, "rate_limit_exceeded")
        await stage.post({}, path=f"{PATH}/{response_id}/cancel")
        await until(lambda: not stage.services.responses._tasks)
        assert (await stage.post({"background": True, "store": True})).status == 200


async def test_a_stream_ends_with_an_error_if_its_response_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        live = move_to_other_gateway(stage, response_id)
        reply = await stage.get(f"{response_id}?stream=true")
        del stage.stored.rows[response_id]
        events, _ = await read_events(reply)
        assert [(event["type"], event["code"]) for event in events] == [("error", "response_not_found")]
        live.cancel()
