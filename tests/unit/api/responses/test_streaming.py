"""Streams of events: opened late, kept alive while nothing comes, and never ended without a last event."""

from __future__ import annotations

import pytest

from sparewatt.api.responses import streaming
from tests.unit.api.responses.stage import STREAMED, on_stage, read_events


async def test_a_stream_is_opened_and_kept_alive_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.05)
    async with on_stage() as stage:
        pending = stage.posting(stream=True)
        await stage.node_request()
        reply = await pending
        assert reply.headers["x-sparewatt-match-id"].startswith("match_")
        await reply.content.readuntil(b": keep-alive\n\n")
        stage.node.answer(*STREAMED)
        assert (await reply.text()).endswith("data: [DONE]\n\n")


async def test_an_error_after_the_stream_is_opened_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.05)
    async with on_stage() as stage:
        pending = stage.posting(stream=True)
        await stage.node_request()
        reply = await pending
        stage.node.lost()
        events, done = await read_events(reply)
        assert not done
        assert [event["type"] for event in events] == [
            *("response.created", "response.in_progress", "response.failed", "error")
        ]


async def test_a_crash_becomes_the_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> bool:
        raise ArithmeticError

    async with on_stage() as stage:
        monkeypatch.setattr(stage.stored, "finish", broken)
        pending = stage.posting(stream=True, store=True)
        await stage.node_request()
        stage.node.answer(*STREAMED)
        events, done = await read_events(await pending)
        assert not done
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "internal_error")
