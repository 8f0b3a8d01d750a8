"""A bug on the path of requests that models answer: the log has its trace, the client an answer without its text."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from sparewatt.edge.connection import Connection
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.idempotency import Idempotency
from tests.property.front import QuickRegistry, Socket, Ticks
from tests.unit.edge.test_exchange_streaming import CHAT, STREAM, a_gateway
from tests.unit.gateway.small_gateway import bearer
from tests.unit.inference.scripted import BODY, DONE, FINISH, ROLE, text_event
from tests.waiting import until

SECRET = "a secret prompt"
NAMED = bearer() | {"idempotency-key": "first"}
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def break_here(*_: object, **__: object) -> object:
    raise KeyError(SECRET)


def crashes(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """Traces of those that were logged."""
    records = [record for record in caplog.records if record.msg == event]
    return [logging.Formatter().formatException(record.exc_info) for record in records if record.exc_info]


@pytest.mark.parametrize("headers", [bearer(), NAMED], ids=["at once", "in a task"])
async def test_a_crash_is_logged_with_its_trace_and_answered_without_its_text(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_gateway() as (client, _, services):
        monkeypatch.setattr(services.inference, "route", break_here)
        reply = await client.post(CHAT, headers=headers, data=BODY)
        body = await reply.text()
        assert services.counter.errors["internal_error"] == 1
    assert reply.status == 500
    assert reply.headers["x-request-id"] in body
    assert SECRET not in body
    (trace,) = crashes(caplog, "request_crashed")
    assert "break_here" in trace


async def test_a_crash_before_anything_was_begun_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_gateway() as (client, [node], _):
        monkeypatch.setattr(Idempotency, "once", break_here)
        assert (await client.post(CHAT, headers=NAMED, data=BODY)).status == 500
        assert not node.opened
    assert len(crashes(caplog, "request_crashed")) == 1


async def test_a_crash_in_a_task_whose_reply_has_begun_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = (ROLE, text_event("Hi"), FINISH, DONE)
    async with a_gateway() as (client, [node], services):
        monkeypatch.setattr(services.idempotency.cache, "end", break_here)
        node.answer_when_asked(*pieces)
        reply = await client.post(CHAT, headers=NAMED, data=STREAM)
        assert reply.status == 200
        assert await reply.read() == b"".join(pieces)
        await until(lambda: crashes(caplog, "request_crashed"))
    (trace,) = crashes(caplog, "request_crashed")
    assert "break_here" in trace


def test_a_crash_of_the_connection_itself_is_logged_with_its_trace_and_closes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks, socket = Ticks(), Socket()
    registry = QuickRegistry(ticks)
    monkeypatch.setattr(InferenceEndpoints, "endpoint", break_here)
    connection = Connection(registry, cast(asyncio.AbstractEventLoop, ticks))
    connection.connection_made(socket)
    connection.data_received(REQUEST)
    assert not socket.is_open
    assert not socket.written
    (trace,) = crashes(caplog, "connection_crashed")
    assert "break_here" in trace, "where it broke, not only that llhttp's callback did"
