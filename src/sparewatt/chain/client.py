"""A JSON-RPC client for one chain's node, on web3. A request ends within CHAIN_CALL_S, with a reply or a ChainError.

It knows nothing of our contracts and stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
from eth_typing import BlockNumber, ChecksumAddress, HexStr
from web3 import AsyncHTTPProvider, AsyncWeb3
from web3.exceptions import BlockNotFound, TransactionNotFound
from web3.types import FilterParams, RPCEndpoint, TxParams

from sparewatt.chain.reverts import translate_chain_errors
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.core.limits import CHAIN_CALL_S
from sparewatt.evm.model import BlockHeader, ChainIdentity, ContractCall, GasFees, RawLog, TransactionReceipt, hex_of
from sparewatt.protocol.signing import keccak256

_T = TypeVar("_T")

GAS_HEADROOM_NUM, GAS_HEADROOM_DEN = 3, 2
"""Half again: the cost of a call depends on the time of its block, and the estimate is made for the last block."""
GAS_SPARE = 100_000
"""A stream that had earned nothing by the last block is settled in the next one: four words are written first then."""
BASE_FEE_ROOM = 2
"""The base fee may double (six full blocks) before a transaction has to be replaced by one that pays more."""

TIP_WEI = 10**9
"""One gwei, where the node has no suggestion."""
TRANSFER_TOPIC = HexStr(hex_of(keccak256(b"Transfer(address,address,uint256)")))
ADDRESSES_PER_FILTER = 500
"""In one `eth_getLogs`: about 35 kB, which every public node takes."""


class KeepAliveProvider(AsyncHTTPProvider):
    """JSON-RPC over one pool of connections. web3's own provider opens one for each request, behind a thread's lock."""

    _session: aiohttp.ClientSession | None = None

    async def _make_request(self, method: RPCEndpoint, request_data: bytes) -> bytes:  # noqa: ARG002 (web3's hook)
        if self._session is None:
            self._session = aiohttp.ClientSession(raise_for_status=True)
        async with self._session.post(str(self.endpoint_uri), data=request_data, **self.get_request_kwargs()) as reply:
            return await reply.read()

    async def disconnect(self) -> None:
        if self._session is not None:
            await self._session.close()


class ChainClient:
    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        """With `api_key`, `url` is a gateway's proxy."""
        headers = {"Content-Type": "application/json"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        self._provider = KeepAliveProvider(url, {"headers": headers}, exception_retry_configuration=None)
        # Without middleware: it asks for the chain's id before each call, and looks for names where addresses are.
        self._web3 = AsyncWeb3(self._provider, middleware=[])

    async def close(self) -> None:
        await self._provider.disconnect()

    # reads

    async def identity(self) -> ChainIdentity:
        chain_id = await self._await_reply(self._web3.eth.chain_id)
        genesis = await self.header(0)
        if genesis is None:
            raise ChainUnavailable("The chain's node does not know the chain's first block. It may still be syncing.")
        return ChainIdentity(int(chain_id), genesis.hash)

    async def head(self) -> BlockHeader:
        return _header(await self._await_reply(self._web3.eth.get_block("latest")))

    async def header(self, number: int) -> BlockHeader | None:
        try:
            return _header(await self._await_reply(self._web3.eth.get_block(BlockNumber(number))))
        except BlockNotFound:
            return None

    async def headers(self, first: int, last: int) -> list[BlockHeader]:
        """Those of `first` to `last` that the chain has."""
        headers = await asyncio.gather(*(self.header(number) for number in range(first, last + 1)))
        return [header for header in headers if header is not None]

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        log_filter: FilterParams = {
            "fromBlock": BlockNumber(first),
            "toBlock": BlockNumber(last),
            "address": [_checksum(address) for address in addresses],
        }
        return [_raw_log(log) for log in await self._await_reply(self._web3.eth.get_logs(log_filter))]

    async def transfers(self, first: int, last: int, token: str, addresses: Sequence[str]) -> list[RawLog]:
        """The ERC-20 `Transfer` logs of a token from or to these addresses, each once."""
        found: dict[tuple[int, int], RawLog] = {}
        for start in range(0, len(addresses), ADDRESSES_PER_FILTER):
            parties = [_topic(address) for address in addresses[start : start + ADDRESSES_PER_FILTER]]
            for topics in ([TRANSFER_TOPIC, parties], [TRANSFER_TOPIC, None, parties]):
                log_filter: FilterParams = {
                    "fromBlock": BlockNumber(first),
                    "toBlock": BlockNumber(last),
                    "address": _checksum(token),
                    "topics": topics,
                }
                for log in await self._await_reply(self._web3.eth.get_logs(log_filter)):
                    raw = _raw_log(log)
                    found[raw.block_number, raw.log_index] = raw
        return list(found.values())

    async def next_nonce(self, address: str) -> int:
        """How many transactions of this address are in blocks."""
        return int(await self._await_reply(self._web3.eth.get_transaction_count(_checksum(address), "latest")))

    async def balance(self, address: str) -> int:
        """In wei: what pays for gas."""
        return int(await self._await_reply(self._web3.eth.get_balance(_checksum(address))))

    async def code(self, address: str) -> bytes:
        return bytes(await self._await_reply(self._web3.eth.get_code(_checksum(address))))

    async def receipt(self, tx_hash: bytes) -> TransactionReceipt | None:
        try:
            return _receipt(await self._await_reply(self._web3.eth.get_transaction_receipt(HexStr(hex_of(tx_hash)))))
        except TransactionNotFound:
            return None

    async def has_transaction(self, tx_hash: bytes) -> bool:
        """Whether it is in a block or in the node's pool."""
        try:
            await self._await_reply(self._web3.eth.get_transaction(HexStr(hex_of(tx_hash))))
        except TransactionNotFound:
            return False
        return True

    async def call(self, call: ContractCall, *, sender: str | None = None, at_block: int | None = None) -> bytes:
        """The result of a call that changes nothing (`eth_call`). Raises ChainReverted."""
        block = None if at_block is None else BlockNumber(at_block)
        return bytes(await self._await_reply(self._web3.eth.call(_params(call, sender), block)))

    async def gas_limit(self, call: ContractCall, *, sender: str) -> int:
        """The limit to sign: the call's own, else an estimate with headroom. Raises ChainReverted."""
        if call.gas_limit is not None:
            return call.gas_limit
        estimate = int(await self._await_reply(self._web3.eth.estimate_gas(_params(call, sender))))
        return estimate * GAS_HEADROOM_NUM // GAS_HEADROOM_DEN + GAS_SPARE

    async def fees(self) -> GasFees:
        """The fees to offer now. A chain without base fees has only its node's gas price."""
        base_fee_wei = (await self.head()).base_fee_wei
        if base_fee_wei is None:
            price_wei = int(await self._await_reply(self._web3.eth.gas_price))
            return GasFees(max_wei=price_wei, tip_wei=price_wei)
        tip_wei = await self._tip_wei() if base_fee_wei else 0
        return GasFees(max_wei=BASE_FEE_ROOM * base_fee_wei + tip_wei, tip_wei=tip_wei)

    async def _tip_wei(self) -> int:
        """As the node suggests; not all nodes have the method."""
        try:
            return int(str(await self.request("eth_maxPriorityFeePerGas")), 16)
        except (ChainRefused, ValueError):
            return TIP_WEI

    # writes

    async def send(self, raw: bytes) -> bool:
        """Submit a signed transaction. False if the node refuses it.

        A node also refuses what it has already. `has_transaction` and `receipt` tell which it is; the words of an
        error message must not decide it.
        """
        try:
            await self._await_reply(self._web3.eth.send_raw_transaction(raw))
        except (ChainRefused, ChainReverted):
            return False
        return True

    async def request(self, method: str, *params: object) -> Any:
        """A method that only some nodes have. Raises ChainRefused if this one does not."""
        reply = await self._await_reply(self._provider.make_request(RPCEndpoint(method), list(params)))
        if "error" in reply:
            raise ChainRefused(f"The chain's node does not do {method}.")
        return reply.get("result")

    async def _await_reply(self, request: Awaitable[_T]) -> _T:
        with translate_chain_errors():
            async with asyncio.timeout(CHAIN_CALL_S):
                return await request


def _checksum(address: str) -> ChecksumAddress:
    return AsyncWeb3.to_checksum_address(address)


def _topic(address: str) -> HexStr:
    return HexStr("0x" + address.removeprefix("0x").rjust(64, "0"))


def _params(call: ContractCall, sender: str | None) -> TxParams:
    params: TxParams = {"data": HexStr(hex_of(call.data))}
    if call.to:
        params["to"] = _checksum(call.to)
    if sender is not None:
        params["from"] = _checksum(sender)
    return params


def _header(block: Mapping[str, Any]) -> BlockHeader:
    return BlockHeader(
        number=int(block["number"]),
        hash=bytes(block["hash"]),
        parent_hash=bytes(block["parentHash"]),
        unix_s=int(block["timestamp"]),
        base_fee_wei=None if block.get("baseFeePerGas") is None else int(block["baseFeePerGas"]),
    )


def _raw_log(log: Mapping[str, Any]) -> RawLog:
    return RawLog(
        block_number=int(log["blockNumber"]),
        log_index=int(log["logIndex"]),
        block_hash=bytes(log["blockHash"]),
        tx_hash=bytes(log["transactionHash"]),
        address=str(log["address"]).lower(),
        topics=tuple(bytes(topic) for topic in log["topics"]),
        data=bytes(log["data"]),
        unix_s=_block_time(log.get("blockTimestamp")),
    )


def _block_time(value: object) -> int:
    """Newer nodes give it with a log, as hex; 0 if this one does not."""
    return int(value, 16) if isinstance(value, str) else value if isinstance(value, int) else 0


def _receipt(receipt: Mapping[str, Any]) -> TransactionReceipt:
    return TransactionReceipt(
        tx_hash=bytes(receipt["transactionHash"]),
        block_number=int(receipt["blockNumber"]),
        block_hash=bytes(receipt["blockHash"]),
        succeeded=int(receipt["status"]) == 1,
        gas_used=int(receipt["gasUsed"]),
    )
