"""Responses that another gateway writes, or wrote until it died; silence; and a gateway that stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparewatt.api.responses import stored, streaming
from sparewatt.core.errors import JobFailed
from sparewatt.core.ids import KeyId
from sparewatt.gateway.chores import _report_responses
from sparewatt.gateway.process import _drain
from sparewatt.inference.responses import event_log, registry
from sparewatt.inference.responses.event_log import EventLog
from tests.unit.api.responses.stage import PATH, STREAMED, Stage, error_of, on_stage, read_events
from tests.unit.inference.scripted import ROLE, text_event
from tests.waiting import until


async def in_background(stage: Stage) -> str:
    begun = await (await stage.post({"background": True, "store": True})).json()
    await stage.asked()
    stage.node.begin(ROLE, text_event("Hel"))
    response_id: str = begun["id"]
    return response_id


def as_if_elsewhere(stage: Stage, response_id: str) -> registry.LiveResponse:
    """This gateway does not know it any more; whoever has it in hand goes on."""
    return stage.services.responses._live.pop(response_id)


async def test_a_wish_to_cancel_reaches_the_gateway_that_writes() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        await stage.stored.request_cancel(response_id, key_id=KeyId("key_user"))
        await _report_responses(stage.services)
        await until(lambda: stage.stored.rows[response_id].response.status == "cancelled")
        assert stage.node.cancelled == [1]


async def test_who_cancels_elsewhere_waits_until_it_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        live = as_if_elsewhere(stage, response_id)
        asking = asyncio.ensure_future(stage.post({}, path=f"{PATH}/{response_id}/cancel"))
        await until(lambda: stage.stored.rows[response_id].cancel_asked)
        live.cancel()
        assert (await (await asking).json())["status"] == "cancelled"


async def test_one_that_is_written_elsewhere_is_told_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        as_if_elsewhere(stage, response_id)
        reply = await stage.get(f"{response_id}?stream=true")
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        events, done = await read_events(reply)
        assert done
        assert events[-1]["type"] == "response.completed"


async def test_one_whose_gateway_died_has_failed() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        as_if_elsewhere(stage, response_id)
        row = stage.stored.rows[response_id]
        row.response = replace(row.response, abandoned=True)
        shown = await (await stage.get(response_id)).json()
        assert (shown["status"], shown["error"]["code"]) == ("failed", "server_error")
        cancelled = await (await stage.post({}, path=f"{PATH}/{response_id}/cancel")).json()
        assert cancelled["status"] == "failed"


async def test_a_gateway_that_stops_ends_what_is_in_the_background() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        await _drain(stage.services)
        assert stage.stored.rows[response_id].response.status == "completed"
        reply = await stage.post({})
        assert (reply.status, (await error_of(reply))["code"]) == (503, "shutting_down")


async def test_what_does_not_end_when_the_gateway_stops_is_cancelled_and_kept() -> None:
    async with on_stage() as stage:
        response_id = await in_background(stage)
        await stage.services.responses.close(within_s=0.05)
        assert stage.stored.rows[response_id].response.status == "cancelled"
        assert stage.node.cancelled == [1]


async def test_a_key_has_only_so_many_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RESPONSES_IN_BACKGROUND_PER_KEY_MAX", 1)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        reply = await stage.post({"background": True, "store": True})
        assert (reply.status, (await error_of(reply))["code"]) == (429, "rate_limit_exceeded")
        await stage.post({}, path=f"{PATH}/{response_id}/cancel")
        await until(lambda: not stage.services.responses._tasks)
        assert (await stage.post({"background": True, "store": True})).status == 200


# silence


async def test_a_stream_begins_when_nothing_has_come_for_long_and_stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.05)
    async with on_stage() as stage:
        asking = stage.posting(stream=True)
        await stage.asked()
        reply = await asking
        assert reply.headers["x-sparewatt-match-id"].startswith("match_")
        await reply.content.readuntil(b": keep-alive\n\n")
        stage.node.answer(*STREAMED)
        assert (await reply.text()).endswith("data: [DONE]\n\n")


async def test_what_fails_after_that_is_said_in_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.05)
    async with on_stage() as stage:
        asking = stage.posting(stream=True)
        await stage.asked()
        reply = await asking
        stage.node.lost()
        events, done = await read_events(reply)
        assert not done
        assert [event["type"] for event in events] == [
            *("response.created", "response.in_progress", "response.failed", "error")
        ]


async def test_a_stream_never_just_ends_whatever_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> bool:
        raise ArithmeticError

    async with on_stage() as stage:
        monkeypatch.setattr(stage.stored, "finish", broken)
        asking = stage.posting(stream=True, store=True)
        await stage.asked()
        stage.node.answer(*STREAMED)
        events, done = await read_events(await asking)
        assert not done
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "internal_error")


async def test_one_that_is_deleted_while_somebody_waits_for_its_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "POLL_S", 0.01)
    async with on_stage() as stage:
        response_id = await in_background(stage)
        live = as_if_elsewhere(stage, response_id)
        reply = await stage.get(f"{response_id}?stream=true")
        del stage.stored.rows[response_id]
        events, _ = await read_events(reply)
        assert [(event["type"], event["code"]) for event in events] == [("error", "response_not_found")]
        live.cancel()


# the log


async def test_many_read_one_log_each_from_where_they_want() -> None:
    log = EventLog()
    readers = [asyncio.ensure_future(_read(log, after)) for after in (-1, 0, 5)]
    await log.add([b"0", b"1"])
    await asyncio.sleep(0)
    await log.add([b"2"])
    log.close()
    assert await asyncio.gather(*readers) == [[b"0", b"1", b"2"], [b"1", b"2"], []]


async def test_who_comes_too_late_for_a_long_log_hears_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "RESPONSE_LOG_BYTES_MAX", 2)
    log = EventLog()
    await log.add([b"0", b"1", b"2"])
    log.close()
    assert await _read(log, 0) == [b"1", b"2"]
    with pytest.raises(JobFailed):
        await _read(log, -1)


async def _read(log: EventLog, after: int) -> list[bytes]:
    return [event async for event in log.follow(after=after)]
