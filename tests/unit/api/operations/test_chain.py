"""The JSON-RPC proxy to the chain: which methods pass, for which keys, and how many."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.api.operations.chain import (
    ALLOWED_METHODS,
    CHAIN_RPC_BATCH_MAX,
    CHAIN_RPC_BODY_BYTES_MAX,
    CHAIN_RPC_BURST,
    RpcRateLimit,
    read_calls,
)
from sparewatt.core.errors import ChainRateLimited, InvalidField, InvalidJson
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, Client, bearer, make_services, running

CALL = {"jsonrpc": "2.0", "id": 7, "method": "eth_blockNumber", "params": []}


class ChainNode:
    """A chain's node that records calls and answers each with the name of its method."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.reply: bytes | None = None

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        calls = body if isinstance(body, list) else [body]
        self.calls += calls
        answers = [{"jsonrpc": "2.0", "id": call["id"], "result": call["method"]} for call in calls]
        text = json.dumps(answers if isinstance(body, list) else answers[0]).encode()
        return web.Response(body=self.reply or text, content_type="application/json")


@asynccontextmanager
async def proxy_to(node: ChainNode) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_post("/", node.answer)
    async with TestServer(app) as server:
        services = make_services(chain_url=str(server.make_url("/")))
        async with running(services) as client:
            yield client


async def call(client: Client, body: object, *, key: str = LENDER) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post("/v1/chain/rpc", data=data, headers=bearer(key)) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize("key", [LENDER, ADMIN])
async def test_a_read_passes_for_nodes_and_admins(key: str) -> None:
    node = ChainNode()
    async with proxy_to(node) as client:
        assert await call(client, CALL, key=key) == (200, {"jsonrpc": "2.0", "id": 7, "result": "eth_blockNumber"})
    assert node.calls == [CALL]


async def test_an_inference_key_is_refused_and_so_is_an_unknown_one() -> None:
    node = ChainNode()
    async with proxy_to(node) as client:
        assert (await call(client, CALL, key=USER))[0] == 403
        assert (await call(client, CALL, key="sk-sw-nobody"))[0] == 401
    assert node.calls == []


COMMANDS = [
    "anvil_setBalance",
    "evm_mine",
    "debug_traceTransaction",
    "eth_sendTransaction",
    "personal_sign",
    "ETH_CALL",
]


@pytest.mark.parametrize("method", COMMANDS)
async def test_a_method_that_controls_the_node_does_not_reach_it(method: str) -> None:
    node = ChainNode()
    async with proxy_to(node) as client:
        status, answer = await call(client, {**CALL, "method": method})
    assert (status, answer["error"]["code"], answer["id"]) == (200, -32601, 7)
    assert node.calls == []


async def test_in_a_batch_each_call_is_checked_by_itself() -> None:
    node = ChainNode()
    calls = [{**CALL, "id": 1}, {**CALL, "id": 2, "method": "evm_mine"}, {**CALL, "id": 3, "method": "eth_getLogs"}]
    async with proxy_to(node) as client:
        _, answers = await call(client, calls)
    assert {answer["id"]: "error" in answer for answer in answers} == {1: False, 2: True, 3: False}
    assert [call["id"] for call in node.calls] == [1, 3]


def test_only_reads_logs_and_signed_transactions_are_allowed() -> None:
    assert not [
        method for method in ALLOWED_METHODS if method.startswith(("anvil_", "evm_", "debug_", "admin_", "personal_"))
    ]
    assert {method for method in ALLOWED_METHODS if "send" in method.lower()} == {"eth_sendRawTransaction"}
    assert not [method for method in ALLOWED_METHODS if "sign" in method.lower()]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff", b"{}", b"[]", b"1", b'{"method": 1}', b'[{"id": 1}]']
)
def test_a_malformed_call_is_refused(body: bytes) -> None:
    with pytest.raises((InvalidJson, InvalidField)):
        read_calls(body)


def test_a_batch_is_bounded() -> None:
    assert len(read_calls(json.dumps([CALL] * CHAIN_RPC_BATCH_MAX).encode())[0]) == CHAIN_RPC_BATCH_MAX
    with pytest.raises(InvalidField, match="batch"):
        read_calls(json.dumps([CALL] * (CHAIN_RPC_BATCH_MAX + 1)).encode())


async def test_a_body_is_bounded() -> None:
    async with proxy_to(ChainNode()) as client:
        assert (await call(client, b" " * (CHAIN_RPC_BODY_BYTES_MAX + 1)))[0] == 413


def test_a_key_gets_a_burst_then_a_steady_rate_and_another_key_its_own() -> None:
    clock = ManualClock(now_s=100.0)
    rate_limit = RpcRateLimit(clock)
    rate_limit.take("a", CHAIN_RPC_BURST)
    with pytest.raises(ChainRateLimited) as caught:
        rate_limit.take("a", 10)
    assert caught.value.retry_after_s == pytest.approx(0.5)
    rate_limit.take("b", 10)
    clock.advance(0.5)
    rate_limit.take("a", 10)
    with pytest.raises(ChainRateLimited):
        rate_limit.take("a", 1)


async def test_without_a_chain_the_error_says_how_to_get_one() -> None:
    async with running(make_services()) as client:
        status, answer = await call(client, CALL)
    assert (status, answer["error"]["code"]) == (409, "no_chain")
    assert "--no-chain" in answer["error"]["message"]


@pytest.mark.parametrize("reply", [b"nonsense", b"1", b'["a"]', b"[" * 100_000])
async def test_an_answer_that_is_no_json_rpc_is_not_passed_on(reply: bytes) -> None:
    node = ChainNode()
    node.reply = reply
    async with proxy_to(node) as client:
        assert (await call(client, CALL))[0] == 503


async def test_an_unreachable_chain_is_unavailable() -> None:
    async with running(make_services(chain_url="http://127.0.0.1:1")) as client:
        assert (await call(client, CALL))[0] == 503
