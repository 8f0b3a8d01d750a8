"""JSON-RPC over a transport that may fail, lie or answer too much."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from eth_abi.abi import encode

from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.evm import json_rpc
from sparewatt.evm.json_rpc import TRIES, HttpTransport, RpcClient
from sparewatt.testing.clocks import InstantClock

Answer = bytes | ChainUnavailable | ChainRefused


class ScriptedTransport:
    """Gives one answer after the other, the last for ever; keeps the bodies that it got."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []

    async def post(self, body: bytes) -> bytes:
        self.bodies.append(body)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def result(value: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": value})


def error(**fields: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "error": fields})


def a_client(*answers: Answer) -> tuple[RpcClient, ScriptedTransport]:
    transport = ScriptedTransport(*answers)
    return RpcClient(transport, InstantClock()), transport


async def test_a_call_is_sent_as_json_rpc_and_its_result_decoded() -> None:
    client, transport = a_client(result("0x10"))
    assert await client.call(str, "eth_chainId", "a", 1) == "0x10"
    assert msgspec.json.decode(transport.bodies[0]) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "eth_chainId",
        "params": ["a", 1],
    }


async def test_a_node_that_does_not_answer_is_asked_again_a_few_times() -> None:
    away = ChainUnavailable("away")
    client, transport = a_client(away, away, result(7))
    assert await client.call(int, "x") == 7
    assert len(transport.bodies) == TRIES == 3
    client, transport = a_client(away)
    with pytest.raises(ChainUnavailable):
        await client.call(int, "x")
    assert len(transport.bodies) == TRIES


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": "text"}', b"[" * 5_000, b"\xff"])
async def test_an_answer_that_is_no_json_rpc_is_no_answer(body: bytes) -> None:
    client, transport = a_client(body, result(1))
    assert await client.call(int, "x") == 1
    assert len(transport.bodies) == 2


async def test_a_result_of_another_shape_is_refused_and_not_asked_for_again() -> None:
    client, transport = a_client(result({"number": "x"}))
    with pytest.raises(ChainUnavailable, match="no valid answer to eth_call"):
        await client.call(int, "eth_call")
    assert len(transport.bodies) == 1


async def test_a_missing_result_is_null() -> None:
    client, _ = a_client(b'{"jsonrpc": "2.0", "id": 1}')
    assert await client.call(int | None, "x") is None


@pytest.mark.parametrize("place", [lambda data: data, lambda data: {"data": data}])
async def test_a_revert_carries_the_contracts_own_reason(place: Callable[[str], object]) -> None:
    returned = "0x08c379a0" + encode(["string"], ["TOO_LATE"]).hex()
    client, transport = a_client(error(code=3, message="anything", data=place(returned)))
    with pytest.raises(ChainReverted) as caught:
        await client.call(str, "eth_call")
    assert caught.value.reason == "TOO_LATE"
    assert len(transport.bodies) == 1


async def test_a_revert_without_a_reason_is_a_revert_by_its_code() -> None:
    client, _ = a_client(error(code=3, message="execution reverted"))
    with pytest.raises(ChainReverted, match="no reason given"):
        await client.call(str, "eth_call")


async def test_a_message_that_speaks_of_a_revert_is_none() -> None:
    """The words are the node's, not the contract's."""
    client, _ = a_client(error(code=-32000, message="execution reverted"))
    with pytest.raises(ChainRefused):
        await client.call(str, "eth_call")


async def test_a_refusal_is_told_on_one_short_line() -> None:
    client, _ = a_client(error(code="rate_limited", message="line one\nline two " + "x" * 1000))
    with pytest.raises(ChainRefused, match="line one line two") as caught:
        await client.call(str, "eth_call")
    assert len(caught.value.message) < 300


# HTTP


async def serve(handler: Callable[[web.Request], web.Response]) -> TestServer:
    app = web.Application()

    async def handle(request: web.Request) -> web.Response:
        return handler(request)

    app.router.add_post("/", handle)
    server = TestServer(app)
    await server.start_server()
    return server


async def test_over_http_a_body_goes_out_with_its_key_and_the_answer_comes_back() -> None:
    seen: list[web.Request] = []

    def handler(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(body=result(5))

    server = await serve(handler)
    transport = HttpTransport(str(server.make_url("/")), api_key="sw-key")
    assert await RpcClient(transport, InstantClock()).call(int, "x") == 5
    assert seen[0].headers["Authorization"] == "Bearer sw-key"
    assert "sw-key" not in repr(transport)
    await transport.close()
    await server.close()


@pytest.mark.parametrize(("status", "message"), [(429, "busy"), (503, "busy")])
async def test_a_busy_server_is_unavailable(status: int, message: str) -> None:
    server = await serve(lambda _: web.Response(status=status))
    transport = HttpTransport(str(server.make_url("/")))
    with pytest.raises(ChainUnavailable, match=message):
        await transport.post(b"{}")
    await transport.close()
    await server.close()


async def test_a_refusal_with_status_400_is_read() -> None:
    """Public nodes answer so to a range that is too large."""
    server = await serve(lambda _: web.Response(status=400, body=error(code=-32005, message="range too large")))
    transport = HttpTransport(str(server.make_url("/")))
    with pytest.raises(ChainRefused, match="range too large"):
        await RpcClient(transport, InstantClock()).call(int, "x")
    await transport.close()
    await server.close()


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rpc, "REPLY_BYTES_MAX", 100)
    server = await serve(lambda _: web.Response(body=b" " * 101))
    transport = HttpTransport(str(server.make_url("/")))
    with pytest.raises(ChainRefused, match="too large"):
        await transport.post(b"{}")
    await transport.close()
    await server.close()


async def test_a_redirect_is_not_followed() -> None:
    """It could lead a body with a key to another host."""
    server = await serve(lambda _: web.Response(status=307, headers={"Location": "/elsewhere"}))
    transport = HttpTransport(str(server.make_url("/")), api_key="sw-key")
    with pytest.raises(ChainUnavailable, match="no JSON-RPC"):
        await RpcClient(transport, InstantClock()).call(int, "x")
    await transport.close()
    await server.close()


async def test_a_server_that_is_away_is_unavailable() -> None:
    server = await serve(lambda _: web.Response())
    url = str(server.make_url("/"))
    await server.close()
    transport = HttpTransport(url)
    with pytest.raises(ChainUnavailable, match="does not answer"):
        await transport.post(b"{}")
    await transport.close()
    await transport.close()
