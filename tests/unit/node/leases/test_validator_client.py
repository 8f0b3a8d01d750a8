"""Calls to a validator over a real socket: what is sent, and what counts as no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.node.leases import validator_client
from sparewatt.node.leases.validator_client import HttpValidatorCalls
from sparewatt.protocol.api.validators import HeartbeatRequest
from sparewatt.protocol.contracts.match_messages import decode_message
from tests.unit.node.leases.test_bid_run import SIGNED

REQUEST = HeartbeatRequest(heartbeat={"seq": 1}, signature="0x00")


class StubValidator:
    """Answers every path with what a test sets, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.reply: Any = {}
        self.status, self.headers = 200, dict[str, str]()

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.path_qs, await request.read()))
        if self.reply is None:
            await asyncio.Event().wait()
        if isinstance(self.reply, bytes):
            return web.Response(body=self.reply, status=self.status, headers=self.headers)
        return web.json_response(self.reply, status=self.status, headers=self.headers)


@asynccontextmanager
async def validator() -> AsyncIterator[tuple[StubValidator, HttpValidatorCalls, str]]:
    stub, app = StubValidator(), web.Application()
    app.router.add_route("*", "/{tail:.*}", stub.handle)
    client = HttpValidatorCalls(gateway_is_local=True)
    async with TestServer(app) as server:
        try:
            yield stub, client, str(server.make_url("/"))
        finally:
            await client.close()


async def test_a_message_goes_out_and_its_answer_comes_back() -> None:
    async with validator() as (stub, client, url):
        stub.reply = {"code": 32, "reason": "LATE", "late_by_ms": 7, "replies": []}
        reply = await client.send(url, SIGNED)
        assert (reply.code, reply.reason, reply.late_by_ms) == (32, "LATE", 7)
        ((path, body),) = stub.requests
        assert (path, decode_message(body)) == ("/v1/match/messages", SIGNED)


async def test_progress_is_a_long_poll() -> None:
    async with validator() as (stub, client, url):
        order = "0x" + "1" * 64
        stub.reply = {"order_id": order, "attempt": 2, "version": 9, "run_id": "r", "phase": "reveal", "round": 0}
        progress = await client.progress(url, order, 2, have=8)
        assert (progress.version, progress.phase) == (9, "reveal")
        assert stub.requests[0][0] == f"/v1/match/{order}/2?have=8&wait_ms=2000"


async def test_a_heartbeat_brings_a_challenge() -> None:
    async with validator() as (stub, client, url):
        stub.reply = {"code": 0, "challenge": "0x" + "2" * 64, "seq": 4}
        assert (await client.beat(url, REQUEST)).challenge == "0x" + "2" * 64
        assert stub.requests[0][0] == "/v1/heartbeats"


BAD: list[dict[str, Any]] = [
    {"status": 404},
    {"status": 500},
    {"status": 302, "headers": {"location": "http://192.168.0.1/"}},
    {"reply": b"<html>router</html>"},
    {"reply": b"\xff\xfe"},
    {"reply": b"[" * 100_000},
    {"reply": {"code": "nought"}},
]


@pytest.mark.parametrize("bad", BAD)
async def test_what_is_no_answer_is_silence(bad: dict[str, Any]) -> None:
    async with validator() as (stub, client, url):
        for name, value in bad.items():
            setattr(stub, name, value)
        with pytest.raises(NoAnswer):
            await client.send(url, SIGNED)
        assert len(stub.requests) == 1, "no redirect is followed"


async def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator_client, "REPLY_BYTES_MAX", 10_000)
    async with validator() as (stub, client, url):
        stub.reply = b'{"code": 0, "reason": "' + b"x" * 20_000 + b'"}'
        with pytest.raises(NoAnswer, match="over 10,000 bytes"):
            await client.send(url, SIGNED)


async def test_who_does_not_answer_in_time_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator_client, "CALL_S", 0.05)
    async with validator() as (stub, client, url):
        stub.reply = None
        with pytest.raises(NoAnswer, match="in time"):
            await client.send(url, SIGNED)


async def test_nobody_is_there() -> None:
    client = HttpValidatorCalls(gateway_is_local=True)
    with pytest.raises(NoAnswer):
        await client.send("http://127.0.0.1:9", SIGNED)
    await client.close()


async def test_a_private_address_is_not_dialled_at_all() -> None:
    async with validator() as (stub, _, url):
        client = HttpValidatorCalls(gateway_is_local=False)
        for where in (url, "http://192.168.0.1", "https://10.1.2.3"):
            with pytest.raises(NoAnswer, match="not dialled"):
                await client.beat(where, REQUEST)
        assert stub.requests == []
        await client.close()
