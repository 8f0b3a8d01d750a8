"""What is asked of a chain's node, and what of its answers is believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.evm.client import GAS_SPARE, EvmClient
from sparewatt.evm.json_rpc import RpcClient
from sparewatt.evm.model import ChainIdentity, ContractCall, GasFees, TransactionReceipt
from sparewatt.testing.clocks import InstantClock

OURS, OTHER = "0x" + "11" * 20, "0x" + "22" * 20
WORD, TX = "0x" + "aa" * 32, "0x" + "bb" * 32


class TableTransport:
    """Answers each method from a table; a value that is an exception's arguments becomes a JSON-RPC error."""

    def __init__(self, **results: Any) -> None:
        self.results = results
        self.calls: list[tuple[str, list[Any]]] = []

    async def post(self, body: bytes) -> bytes:
        call = msgspec.json.decode(body)
        self.calls.append((call["method"], call["params"]))
        answer = self.results[call["method"]]
        if isinstance(answer, Exception):
            return msgspec.json.encode({"error": {"code": -32000, "message": str(answer)}})
        return msgspec.json.encode({"result": answer})


def a_client(**results: Any) -> tuple[EvmClient, TableTransport]:
    transport = TableTransport(**results)
    return EvmClient(RpcClient(transport, InstantClock())), transport


def a_block(at: int = 5, **changes: Any) -> dict[str, Any]:
    return {
        "number": hex(at),
        "hash": WORD,
        "parentHash": TX,
        "timestamp": "0x64",
        "baseFeePerGas": "0x7",
        "extraData": "0x",
        **changes,
    }


def a_log(**changes: Any) -> dict[str, Any]:
    return {
        "address": OURS,
        "topics": [WORD],
        "data": "0x01",
        "blockNumber": "0x5",
        "blockHash": WORD,
        "transactionHash": TX,
        "logIndex": "0x0",
        **changes,
    }


async def test_a_block_is_read() -> None:
    client, transport = a_client(eth_getBlockByNumber=a_block())
    head = await client.head()
    assert (head.number, head.hash.hex(), head.parent_hash.hex()) == (5, WORD[2:], TX[2:])
    assert (head.unix_s, head.base_fee_wei) == (100, 7)
    assert transport.calls == [("eth_getBlockByNumber", ["latest", False])]
    assert await client.header(5) == head


@pytest.mark.parametrize(
    ("bloom", "has_logs"),
    [({"logsBloom": "0x" + "00" * 256}, False), ({"logsBloom": "0x" + "00" * 255 + "10"}, True), ({}, True)],
)
async def test_an_empty_bloom_filter_says_that_a_block_has_no_logs(bloom: dict[str, Any], *, has_logs: bool) -> None:
    client, _ = a_client(eth_getBlockByNumber=a_block(**bloom))
    assert (await client.head()).has_logs is has_logs


async def test_a_block_that_is_not_there_is_none() -> None:
    client, _ = a_client(eth_getBlockByNumber=None)
    assert await client.header(5) is None
    with pytest.raises(ChainUnavailable):
        await client.head()


async def test_another_block_than_the_one_asked_for_is_refused() -> None:
    client, _ = a_client(eth_getBlockByNumber=a_block(6))
    with pytest.raises(ChainUnavailable, match="block 6 instead of 5"):
        await client.header(5)


@pytest.mark.parametrize(
    "changes",
    [
        {"number": "5"},
        {"number": 5},
        {"hash": "0xaa"},
        {"timestamp": "0x"},
        {"parentHash": None},
        {"hash": WORD + "00"},
    ],
)
async def test_a_block_in_another_form_is_refused(changes: dict[str, Any]) -> None:
    client, _ = a_client(eth_getBlockByNumber=a_block(**changes))
    with pytest.raises(ChainUnavailable, match="no valid answer"):
        await client.head()


async def test_a_chain_is_known_by_its_id_and_its_first_block() -> None:
    client, _ = a_client(eth_getBlockByNumber=a_block(0), eth_chainId="0x7a69")
    assert await client.identity() == ChainIdentity(31337, bytes.fromhex(WORD[2:]))
    client, _ = a_client(eth_getBlockByNumber=None)
    with pytest.raises(ChainUnavailable, match="syncing"):
        await client.identity()


async def test_logs_of_our_contracts_are_read() -> None:
    client, transport = a_client(eth_getLogs=[a_log(address="0x" + "11" * 20), a_log(logIndex="0x1", removed=True)])
    (log,) = await client.logs(3, 6, [OURS])
    assert (log.block_number, log.log_index, log.address, log.data, log.unix_s) == (5, 0, OURS, b"\1", 0)
    assert transport.calls == [("eth_getLogs", [{"fromBlock": "0x3", "toBlock": "0x6", "address": [OURS]}])]


async def test_a_node_that_tells_the_time_of_a_log_is_heard() -> None:
    client, _ = a_client(eth_getLogs=[a_log(blockTimestamp="0x64")])
    (log,) = await client.logs(5, 5, [OURS])
    assert log.unix_s == 100


@pytest.mark.parametrize(
    "logs",
    [
        [a_log(address=OTHER)],
        [a_log(blockNumber="0x7")],
        [a_log(blockNumber="0x2")],
        [a_log(), a_log()],
        [a_log(topics=[WORD] * 5)],
        [a_log(data="0x1")],
        [a_log(blockHash=None)],
        {"not": "a list"},
    ],
    ids=["a stranger's", "too new", "too old", "twice", "five topics", "half a byte", "no hash", "no list"],
)
async def test_logs_that_nobody_asked_for_are_refused(logs: Any) -> None:
    """The cheapest lie of a node: an event that was never emitted by our contract, or in another block."""
    client, _ = a_client(eth_getLogs=logs)
    with pytest.raises(ChainUnavailable):
        await client.logs(3, 6, [OURS])


async def test_a_contract_is_called_at_a_block() -> None:
    client, transport = a_client(eth_call="0x0102")
    assert await client.call(ContractCall(OURS, b"\3"), sender=OTHER, at_block=9) == b"\1\2"
    assert transport.calls == [("eth_call", [{"data": "0x03", "to": OURS, "from": OTHER}, "0x9"])]


async def test_gas_is_estimated_with_room_unless_the_call_says_how_much() -> None:
    client, transport = a_client(eth_estimateGas="0x64")
    assert await client.gas_limit(ContractCall("", b"\3"), sender=OURS) == 150 + GAS_SPARE
    assert transport.calls[0][1] == [{"data": "0x03", "from": OURS}]
    assert await client.gas_limit(ContractCall("", b"", gas_limit=7), sender=OURS) == 7


@pytest.mark.parametrize(
    ("base_fee", "fees"), [("0x7", GasFees(max_wei=17, tip_wei=3)), ("0x0", GasFees(0, 0)), (None, GasFees(9, 9))]
)
async def test_fees_follow_the_base_fee(base_fee: str | None, fees: GasFees) -> None:
    block = a_block(baseFeePerGas=base_fee)
    client, _ = a_client(eth_getBlockByNumber=block, eth_maxPriorityFeePerGas="0x3", eth_gasPrice="0x9")
    assert await client.fees() == fees


async def test_a_receipt_is_read_and_a_missing_one_is_none() -> None:
    fields = {"transactionHash": TX, "blockNumber": "0x5", "blockHash": WORD, "status": "0x0", "gasUsed": "0x10"}
    client, _ = a_client(eth_getTransactionReceipt=fields)
    tx_hash = bytes.fromhex(TX[2:])
    assert await client.receipt(tx_hash) == TransactionReceipt(tx_hash, 5, bytes.fromhex(WORD[2:]), False, 16)
    client, _ = a_client(eth_getTransactionReceipt=None)
    assert await client.receipt(tx_hash) is None


async def test_a_transaction_is_sent_or_refused() -> None:
    client, transport = a_client(eth_sendRawTransaction=TX)
    assert await client.send(b"\2\xff")
    assert transport.calls == [("eth_sendRawTransaction", ["0x02ff"])]
    client, _ = a_client(eth_sendRawTransaction=ValueError("already known"))
    assert not await client.send(b"\2")


async def test_small_questions_have_small_answers() -> None:
    client, _ = a_client(eth_getTransactionCount="0x4", eth_getCode="0x6001", eth_getTransactionByHash={"hash": TX})
    assert await client.next_nonce(OURS) == 4
    assert await client.code(OURS) == b"\x60\1"
    assert await client.has_transaction(bytes(32))
    client, _ = a_client(eth_getTransactionByHash=None, eth_getCode=ValueError("no"))
    assert not await client.has_transaction(bytes(32))
    with pytest.raises(ChainRefused):
        await client.code(OURS)


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ("anvil/v1.2.3", "anvil/v1.2.3"),
        ("a\nb\x00c" + "d" * 200, "abc" + "d" * 97),
        (ValueError("no such method"), ""),
        ({"name": "anvil"}, ""),
    ],
)
async def test_the_node_s_program_is_named_as_far_as_it_tells(told: Any, known: str) -> None:
    client, _ = a_client(web3_clientVersion=told)
    assert await client.client_version() == known
