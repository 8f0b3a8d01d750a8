"""What nodes and validators ask of a chain's node: blocks, logs, reads of contracts, and the sending of transactions.

It knows nothing of our contracts and stores nothing. Numbers and hashes of a reply are checked for their form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from sparewatt.core.errors import ChainError, ChainRefused, ChainUnavailable
from sparewatt.evm.json_rpc import RpcClient
from sparewatt.evm.model import (
    BlockHeader,
    ChainIdentity,
    ContractCall,
    GasFees,
    RawLog,
    TransactionReceipt,
    bytes_of,
    hex_of,
)

GAS_HEADROOM_NUM, GAS_HEADROOM_DEN = 3, 2
"""Half again: the cost of a call depends on the time of its block, and the estimate is made for the last block."""
GAS_SPARE = 100_000
"""A stream that had earned nothing by the last block is settled in the next one: four words are written first then."""
BASE_FEE_ROOM = 2
"""The base fee may double (six full blocks) before a transaction has to be replaced by one that pays more."""
TOPICS_MAX = 4
CLIENT_VERSION_CHARS = 100

Quantity = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{1,64}$")]
Data = Annotated[str, msgspec.Meta(pattern="^0x([0-9a-fA-F]{2})*$")]
Hash = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")]
AddressText = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{40}$")]


class _Block(msgspec.Struct, rename="camel"):
    number: Quantity
    hash: Hash
    parent_hash: Hash
    timestamp: Quantity
    base_fee_per_gas: Quantity | None = None
    logs_bloom: Data | None = None

    def header(self) -> BlockHeader:
        base_fee = self.base_fee_per_gas
        return BlockHeader(
            number=int(self.number, 16),
            hash=bytes_of(self.hash),
            parent_hash=bytes_of(self.parent_hash),
            unix_s=int(self.timestamp, 16),
            base_fee_wei=None if base_fee is None else int(base_fee, 16),
            has_logs=self.logs_bloom is None or bool(self.logs_bloom.removeprefix("0x").strip("0")),
        )


class _Log(msgspec.Struct, rename="camel"):
    address: AddressText
    topics: Annotated[list[Hash], msgspec.Meta(max_length=TOPICS_MAX)]
    data: Data
    block_number: Quantity
    block_hash: Hash
    transaction_hash: Hash
    log_index: Quantity
    block_timestamp: Quantity | None = None
    """Newer nodes give it."""
    removed: bool = False

    def raw(self) -> RawLog:
        return RawLog(
            block_number=int(self.block_number, 16),
            log_index=int(self.log_index, 16),
            block_hash=bytes_of(self.block_hash),
            tx_hash=bytes_of(self.transaction_hash),
            address=self.address.lower(),
            topics=tuple(map(bytes_of, self.topics)),
            data=bytes_of(self.data),
            unix_s=int(self.block_timestamp or "0x0", 16),
        )


class _Receipt(msgspec.Struct, rename="camel"):
    transaction_hash: Hash
    block_number: Quantity
    block_hash: Hash
    status: Quantity
    gas_used: Quantity

    def receipt(self) -> TransactionReceipt:
        return TransactionReceipt(
            tx_hash=bytes_of(self.transaction_hash),
            block_number=int(self.block_number, 16),
            block_hash=bytes_of(self.block_hash),
            succeeded=int(self.status, 16) == 1,
            gas_used=int(self.gas_used, 16),
        )


class _KnownTransaction(msgspec.Struct):
    hash: Hash


@dataclass(frozen=True, slots=True)
class EvmClient:
    rpc: RpcClient

    # reads

    async def identity(self) -> ChainIdentity:
        genesis = await self.header(0)
        if genesis is None:
            raise ChainUnavailable("The chain's node does not know the chain's first block. It may still be syncing.")
        return ChainIdentity(await self._number("eth_chainId"), genesis.hash)

    async def client_version(self) -> str:
        """The name and version of the node's program, as far as it tells; for people and dashboards."""
        try:
            told: str = await self.rpc.call(str, "web3_clientVersion")
        except ChainError:
            return ""
        return "".join(char for char in told if char.isprintable())[:CLIENT_VERSION_CHARS]

    async def head(self) -> BlockHeader:
        block: _Block = await self.rpc.call(_Block, "eth_getBlockByNumber", "latest", False)
        return block.header()

    async def header(self, number: int) -> BlockHeader | None:
        """None if the chain does not have it."""
        block: _Block | None = await self.rpc.call(_Block | None, "eth_getBlockByNumber", hex(number), False)
        if block is None:
            return None
        header = block.header()
        if header.number != number:
            raise ChainUnavailable(f"The chain's node answered with block {header.number} instead of {number}.")
        return header

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        """Raises ChainUnavailable if the node answers with logs that were not asked for."""
        log_filter = {"fromBlock": hex(first), "toBlock": hex(last), "address": list(addresses)}
        found: list[_Log] = await self.rpc.call(list[_Log], "eth_getLogs", log_filter)
        logs = [log.raw() for log in found if not log.removed]
        wanted = {address.lower() for address in addresses}
        if any(log.address not in wanted or not first <= log.block_number <= last for log in logs):
            raise ChainUnavailable("The chain's node gave logs that nobody asked for.")
        if len({(log.block_number, log.log_index) for log in logs}) != len(logs):
            raise ChainUnavailable("The chain's node gave the same log twice.")
        return logs

    async def next_nonce(self, address: str) -> int:
        """How many transactions of this address are in blocks."""
        return await self._number("eth_getTransactionCount", address, "latest")

    async def code(self, address: str) -> bytes:
        code: str = await self.rpc.call(Data, "eth_getCode", address, "latest")
        return bytes_of(code)

    async def receipt(self, tx_hash: bytes) -> TransactionReceipt | None:
        found: _Receipt | None = await self.rpc.call(_Receipt | None, "eth_getTransactionReceipt", hex_of(tx_hash))
        return found.receipt() if found else None

    async def has_transaction(self, tx_hash: bytes) -> bool:
        """Whether it is in a block or in the node's pool."""
        found: _KnownTransaction | None = await self.rpc.call(
            _KnownTransaction | None, "eth_getTransactionByHash", hex_of(tx_hash)
        )
        return found is not None

    async def call(self, call: ContractCall, *, sender: str | None = None, at_block: int | None = None) -> bytes:
        """The result of a call that changes nothing (`eth_call`). Raises ChainReverted."""
        block = "latest" if at_block is None else hex(at_block)
        result: str = await self.rpc.call(Data, "eth_call", _params(call, sender), block)
        return bytes_of(result)

    async def gas_limit(self, call: ContractCall, *, sender: str) -> int:
        """The limit to sign: the call's own, else an estimate with headroom. Raises ChainReverted."""
        if call.gas_limit is not None:
            return call.gas_limit
        return (
            await self._number("eth_estimateGas", _params(call, sender)) * GAS_HEADROOM_NUM // GAS_HEADROOM_DEN
            + GAS_SPARE
        )

    async def fees(self) -> GasFees:
        """The fees to offer now. A chain without base fees has only its node's gas price."""
        base_fee_wei = (await self.head()).base_fee_wei
        if base_fee_wei is None:
            price_wei = await self._number("eth_gasPrice")
            return GasFees(max_wei=price_wei, tip_wei=price_wei)
        tip_wei = await self._number("eth_maxPriorityFeePerGas") if base_fee_wei else 0
        return GasFees(max_wei=BASE_FEE_ROOM * base_fee_wei + tip_wei, tip_wei=tip_wei)

    # writes

    async def send(self, raw: bytes) -> bool:
        """Submit a signed transaction. False if the node refuses it, also because it has it already."""
        try:
            await self.rpc.call(Hash, "eth_sendRawTransaction", hex_of(raw))
        except ChainRefused:
            return False
        return True

    async def _number(self, method: str, *params: object) -> int:
        text: str = await self.rpc.call(Quantity, method, *params)
        return int(text, 16)


def _params(call: ContractCall, sender: str | None) -> dict[str, Any]:
    params = {"data": hex_of(call.data)}
    if call.to:
        params["to"] = call.to
    if sender is not None:
        params["from"] = sender
    return params
