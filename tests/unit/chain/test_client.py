"""What a node's refusals mean for sending and for fees: none of them ends the process."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.chain import client as client_module
from sparewatt.chain.client import TIP_WEI, TRANSFER_TOPIC, ChainClient
from sparewatt.evm.model import ContractCall, GasFees

TOKEN = "0x" + "7" * 40
REFUSALS = [
    "replacement transaction underpriced",
    "already known",
    "nonce too low",
    "insufficient funds for gas * price + value",
    "execution reverted",
    "max fee per gas less than block base fee",
]


class Answers:
    """A provider of JSON-RPC with fixed answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    async def make_request(self, method: str, _params: object) -> Any:
        answer = self.answers.get(method, {"error": {"code": -32601, "message": "method not found"}})
        return {"jsonrpc": "2.0", "id": 1, **answer}


def client_of(**answers: Any) -> ChainClient:
    client, provider = ChainClient("http://127.0.0.1:1"), Answers(**answers)
    client._provider.make_request = provider.make_request  # type: ignore[method-assign]
    return client


@pytest.mark.parametrize("message", REFUSALS)
@pytest.mark.parametrize("code", [-32000, -32003, 3])
async def test_a_transaction_that_the_node_refuses_is_not_taken_whatever_the_reason(message: str, code: int) -> None:
    client = client_of(eth_sendRawTransaction={"error": {"code": code, "message": message}})
    assert not await client.send(b"\x02raw")


async def test_a_transaction_that_the_node_takes_is_taken() -> None:
    assert await client_of(eth_sendRawTransaction={"result": "0x" + "11" * 32}).send(b"\x02raw")


def block(base_fee_wei: int) -> dict[str, Any]:
    return {
        "result": {
            "number": "0x9",
            "hash": "0x" + "22" * 32,
            "parentHash": "0x" + "33" * 32,
            "timestamp": "0x5",
            "baseFeePerGas": hex(base_fee_wei),
        }
    }


@pytest.mark.parametrize(
    ("tip", "expected"),
    [({"result": hex(7)}, 7), ({"error": {"code": -32601, "message": "no"}}, TIP_WEI), ({"result": None}, TIP_WEI)],
    ids=["suggested", "the node has no such method", "the node says nothing"],
)
async def test_the_tip_is_the_nodes_suggestion_or_a_usual_one(tip: dict[str, Any], expected: int) -> None:
    client = client_of(eth_getBlockByNumber=block(100), eth_maxPriorityFeePerGas=tip)
    assert await client.fees() == GasFees(max_wei=200 + expected, tip_wei=expected)


async def test_where_gas_is_free_nothing_is_offered() -> None:
    assert await client_of(eth_getBlockByNumber=block(0)).fees() == GasFees(0, 0)


# transfers of a foreign token


async def test_transfers_are_asked_for_by_both_ends_and_in_portions_and_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "ADDRESSES_PER_FILTER", 2)
    asked: list[Any] = []
    log = {
        "blockNumber": 7,
        "logIndex": 1,
        "blockHash": b"\x01" * 32,
        "transactionHash": b"\x02" * 32,
        "address": TOKEN,
        "topics": [],
        "data": b"",
    }

    async def get_logs(log_filter: Any) -> list[dict[str, Any]]:
        asked.append(log_filter["topics"])
        return [log]

    client, held = ChainClient("http://127.0.0.1:1"), ["0x" + digit * 40 for digit in "abc"]
    monkeypatch.setattr(client._web3.eth, "get_logs", get_logs)
    assert [found.log_index for found in await client.transfers(5, 9, TOKEN, held)] == [1]
    words = ["0x" + "0" * 24 + address[2:] for address in held]
    assert asked == [
        [TRANSFER_TOPIC, words[:2]],
        [TRANSFER_TOPIC, None, words[:2]],
        [TRANSFER_TOPIC, words[2:]],
        [TRANSFER_TOPIC, None, words[2:]],
    ]
    assert await client.transfers(5, 9, TOKEN, []) == []


# connections


async def test_requests_share_a_connection_and_ask_for_nothing_else() -> None:
    """A connection for each request is a TLS handshake for each, with a public node."""
    methods, connections = list[str](), set[object]()

    async def answer(request: web.Request) -> web.Response:
        methods.append((await request.json())["method"])
        connections.add(request.transport)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": "0x07"})

    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        client = ChainClient(str(server.make_url("/")))
        for _ in range(3):
            assert await client.call(ContractCall(TOKEN, b"\x01")) == b"\x07"
        await client.close()
    assert methods == ["eth_call"] * 3
    assert len(connections) == 1
